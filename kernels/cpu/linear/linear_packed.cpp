// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/linear/linear_packed.hpp"

#include "kernels/api/measured_constants.hpp"
#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/linear/linear_tiles.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

constexpr int64_t side = RowBlocks::square_rows, square_elements = side * side;
static_assert(side == bf16_panel);

// A larger y leaves the second cache before it is read, so it is written past the caches. Prototypes
// on Granite Rapids, 8192 × 576 × 1536: 640 GFLOP/s, and 940 so.
MeasuredConstant least_streamed_bytes("linear.streamed_bytes", int64_t{1} << 21,
                                      {int64_t{1} << 18, int64_t{1} << 40});

/// Rows and panels of a product, and what cuts them into tasks.
struct PackedProduct {
  const Bf16Kernel& kernel;
  RowBlocks blocks;
  const uint16_t* rows;  ///< packed
  int64_t columns;       ///< of each matrix

  int64_t columns_of_task(int num_threads) const {
    int64_t each = (columns + side - 1) / side * side;
    const auto tasks = [&] { return blocks.num_blocks() * ((columns + each - 1) / each); };
    while (num_threads > 1 && tasks() < 4 * num_threads && each > side)
      each = (each / 2 + side - 1) / side * side;
    return each;
  }
};

/// What the sums of a square begin with.
struct Begin {
  const float* from = nullptr;
  int64_t stride = 0;
};

/// The sums of a block of rows and one panel, in `sums` [squares, 32, 32]. Calls done(square) once
/// they are complete, a square late: numbers that tiles have just stored are not there yet.
template <typename BeginOf, typename Done>
void multiply_panel(const PackedProduct& product, int64_t block, const uint16_t* panel,
                    const BeginOf& begin_of, float* sums, const Done& done) {
  const RowBlocks& blocks = product.blocks;
  const int64_t squares = blocks.squares_of(block);
  for (int64_t piece = 0; piece < blocks.pieces; ++piece) {
    const int64_t steps = blocks.steps_of(piece);
    const uint16_t* const columns = panel + blocks.first_step(piece) * RowBlocks::step_elements;
    const int64_t piece_lines = steps * RowBlocks::step_elements / 32;
    for (int64_t square = 0; square < squares; ++square) {
      // What follows this piece of the panel, the next piece or panel, comes meanwhile.
      const int64_t line = piece_lines * square / squares;
      for (int64_t i = line; i < piece_lines * (square + 1) / squares; ++i)
        __builtin_prefetch(columns + (piece_lines + i) * 32, 0, 2);
      float* const to = sums + square * square_elements;
      const Begin begin = piece == 0 ? begin_of(square, to) : Begin{to, side};
      product.kernel.multiply_square({.a = product.rows + blocks.at(block, piece, square),
                                      .b = columns,
                                      .steps = steps,
                                      .rows = blocks.rows_of_square(block, square),
                                      .begin = begin.from,
                                      .begin_stride = begin.stride,
                                      .sums = to});
      if (piece + 1 == blocks.pieces && square > 0) done(square - 1);
    }
  }
  done(squares - 1);
}

/// Calls body(block, first panel's column, end column, worker) for all tasks. Tasks of the same
/// columns follow one another, so that threads share what they read of the weights.
template <typename Body>
void for_each_block(const PackedProduct& product, const device::Stream& stream, const Body& body) {
  const int64_t blocks = product.blocks.num_blocks();
  const int64_t each = product.columns_of_task(stream.num_threads());
  const int64_t groups = (product.columns + each - 1) / each;
  for_each_task(stream, blocks * groups, [&](int64_t task, const Worker& worker) {
    const InThread use(product.kernel);
    const int64_t first = task / blocks * each;
    body(task % blocks, first, std::min(product.columns, first + each), worker);
  });
}

/// 32 numbers of a bias, with zeros where there are none.
struct BiasOfPanel {
  alignas(64) float numbers[side] = {};

  BiasOfPanel(const TensorView& bias, int64_t column, int64_t columns) {
    if (bias) begin_with_bias(bias, column, 1, columns, numbers, side, false);
  }
};

/// One part of the depth, of at most most_packed_depth.
void multiply_part(const Bf16Kernel& kernel, const LinearArgs& args, const Panels& weights,
                   PackedRows& packed, const device::Stream& stream, Workspace& workspace) {
  const RowBlocks blocks = row_blocks(args.x.rows(), args.x.size(1));
  const PackedProduct product{kernel, blocks, packed.of(args.x, blocks, args.same_x, stream),
                              args.y.size(1)};
  const bool adds = args.accumulate == Accumulate::yes;
  const bool streamed = !adds && args.y.elements() * size_of(DType::fp32) >= least_streamed_bytes;
  workspace.reserve_threads(stream.num_threads(),
                            Carver::bytes_of<float>(blocks.block_rows * side));
  for_each_block(
      product, stream, [&](int64_t block, int64_t first, int64_t end, const Worker& worker) {
        auto* const sums = workspace.of_thread(worker.thread).take<float>(blocks.block_rows * side);
        for (int64_t column = first; column < end; column += side) {
          const int64_t width = std::min(side, end - column);
          const BiasOfPanel bias(args.bias, column, width);
          const auto y_of = [&](int64_t square) {
            const int64_t row = block * blocks.block_rows + square * side;
            return static_cast<float*>(args.y.row(row)) + column;
          };
          const auto begin_of = [&](int64_t square, float* to) -> Begin {
            if (!adds) return args.bias ? Begin{bias.numbers, 0} : Begin{};
            const int64_t rows = blocks.rows_of_square(block, square), stride = args.y.row_stride();
            const float* const y = y_of(square);
            if (!args.bias && width == side && rows % (side / 2) == 0) return {y, stride};
            for (int64_t r = 0; r < rows; ++r)
              for (int64_t o = 0; o < width; ++o)
                to[r * side + o] =
                    args.bias ? y[r * stride + o] + bias.numbers[o] : y[r * stride + o];
            return {to, side};
          };
          multiply_panel(
              product, block, weights.at(column, 0), begin_of, sums, [&](int64_t square) {
                write_square(sums + square * square_elements, blocks.rows_of_square(block, square),
                             width, y_of(square), args.y.row_stride(), streamed);
              });
          worker.poll();
        }
        if (streamed) end_of_streamed();
      });
}

}  // namespace

void linear_packed(const Bf16Kernel& kernel, const LinearArgs& args, const Panels& weights,
                   PackedRows& packed, const device::Stream& stream, Workspace& workspace) {
  const int64_t depth = args.x.size(1), steps = (depth + bf16_depth - 1) / bf16_depth;
  const int64_t parts = std::max<int64_t>(1, (depth + most_packed_depth - 1) / most_packed_depth);
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = steps * part / parts * bf16_depth;
    const int64_t end = std::min(depth, steps * (part + 1) / parts * bf16_depth);
    LinearArgs own = args;
    own.x = args.x.slice_columns(begin, end - begin);
    if (part > 0) own.accumulate = Accumulate::yes, own.bias = {};
    multiply_part(kernel, own, {weights.at(0, begin), weights.depth}, packed, stream, workspace);
  }
}

void gated_linear_packed(const Bf16Kernel& kernel, const GatedLinearArgs& args,
                         const GatedPanels& weights, PackedRows& packed,
                         const device::Stream& stream, Workspace& workspace) {
  const RowBlocks blocks = row_blocks(args.x.rows(), args.x.size(1));
  const PackedProduct product{kernel, blocks, packed.of(args.x, blocks, SameX::no, stream),
                              args.out.size(1)};
  const int64_t elements = blocks.block_rows * side;
  workspace.reserve_threads(stream.num_threads(), 2 * Carver::bytes_of<float>(elements));
  for_each_block(
      product, stream, [&](int64_t block, int64_t first, int64_t end, const Worker& worker) {
        Carver carver = workspace.of_thread(worker.thread);
        auto* const gates = carver.take<float>(elements);
        auto* const ups = carver.take<float>(elements);
        for (int64_t column = first; column < end; column += side) {
          const int64_t width = std::min(side, end - column);
          const auto multiply = [&](const Panels& panels, const TensorView& bias, float* sums,
                                    const auto& done) {
            const BiasOfPanel numbers(bias, column, width);
            const Begin begin = bias ? Begin{numbers.numbers, 0} : Begin{};
            multiply_panel(
                product, block, panels.at(column, 0), [&](int64_t, float*) { return begin; }, sums,
                done);
          };
          multiply(weights.gate, args.gate_bias, gates, [](int64_t) {});
          multiply(weights.up, args.up_bias, ups, [&](int64_t square) {
            const int64_t rows = blocks.rows_of_square(block, square);
            const auto of = [&](float* sums) {
              return TensorView(sums + square * square_elements, DType::fp32, {side, side})
                  .slice_rows(0, rows)
                  .slice_columns(0, width);
            };
            const TensorView out =
                args.out.slice_rows(block * blocks.block_rows + square * side, rows)
                    .slice_columns(column, width);
            gated_activation_of_rows({of(gates), of(ups), out, args.activation}, 0, rows);
          });
          worker.poll();
        }
      });
}

}  // namespace pecia::kernels::cpu
