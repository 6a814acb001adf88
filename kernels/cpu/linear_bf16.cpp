/// Linear of bf16 weights in products of bf16 (bf16_products.hpp): x is rounded once for the op,
/// where it is not bf16 already.

#include "kernels/cpu/bf16_native.hpp"
#include "kernels/cpu/bf16_products.hpp"
#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

// Measured crossover at depths 576 to 4096 (Zen 5).
constexpr int64_t few_rows = 16;
// A packed block of weights, depth × columns, is 256 KiB: it lies in the second cache while all the
// rows of a task meet it; a tile of rows, 28 KiB, in the first.
constexpr int64_t max_depth = 1024;
constexpr int64_t max_columns = 128;
// Rows multiplied between two polls: whole tiles, under 0.1 ms.
constexpr int64_t rows_per_poll = 84;

/// Rows of bf16 that may be read one element past an odd end.
struct Operand {
  const uint16_t* data;
  int64_t stride;
};

Operand rounded(const TensorView& x, const device::Stream& stream, Workspace& workspace) {
  const int64_t rows = x.rows(), depth = x.size(1), stride = (depth + 31) / 32 * 32;
  if (x.dtype() == DType::bf16 && depth % 2 == 0)
    return {static_cast<const uint16_t*>(x.data()), x.row_stride()};
  workspace.reserve_shared(Carver::bytes_of<uint16_t>(rows * stride));
  auto* const to = workspace.shared().take<uint16_t>(rows * stride);
  for_each_range(stream, rows, rows_per_task(depth), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (x.dtype() == DType::bf16)
        std::copy_n(static_cast<const uint16_t*>(x.row(row)), depth, to + row * stride);
      else
        store_bf16_native(static_cast<const float*>(x.row(row)), depth, to + row * stride);
      std::fill(to + row * stride + depth, to + (row + 1) * stride, 0);
    }
  });
  return {to, stride};
}

const uint16_t* weights_of(const LinearArgs& args, int64_t column) {
  return static_cast<const uint16_t*>(args.weight.row(column));
}

float* sums_of(const LinearArgs& args, int64_t row, int64_t column) {
  return static_cast<float*>(args.y.row(row)) + column;
}

/// The bias into a piece of y, before the products are added; whether they are added to something.
bool begin_piece(const LinearArgs& args, int64_t row, int64_t num_rows, int64_t column,
                 int64_t num_columns) {
  const bool adds = args.accumulate == Accumulate::yes;
  if (!args.bias) return adds;
  for (int64_t done = 0; done < num_columns; done += max_columns) {
    const int64_t width = std::min(max_columns, num_columns - done);
    float bias[max_columns];
    widen_rows(
        static_cast<const char*>(args.bias.data()) + (column + done) * size_of(args.bias.dtype()),
        args.bias.dtype(), width, 1, width, bias, width);
    for (int64_t r = row; r < row + num_rows; ++r) {
      float* const y = sums_of(args, r, column + done);
      for (int64_t o = 0; o < width; ++o) y[o] = adds ? y[o] + bias[o] : bias[o];
    }
  }
  return true;
}

/// Nothing packed: a task reads its columns' weights once.
void few(const LinearArgs& args, const Operand& x, const device::Stream& stream) {
  const int64_t rows = args.x.rows(), depth = args.x.size(1), out = args.y.size(1);
  constexpr int64_t unit = 8;
  const int64_t even_share = (out + 4 * stream.num_threads() - 1) / (4 * stream.num_threads());
  const int64_t least = std::max(rows_per_task(depth), even_share);
  const int64_t grain = (least + unit - 1) / unit * unit;
  for_each_range(stream, out, grain, [&](int64_t begin, int64_t end) {
    const bool adds = begin_piece(args, 0, rows, begin, end - begin);
    dot_bf16({.a = x.data,
              .a_stride = x.stride,
              .b = weights_of(args, begin),
              .b_stride = args.weight.row_stride(),
              .c = sums_of(args, 0, begin),
              .c_stride = args.y.row_stride(),
              .rows = rows,
              .columns = end - begin,
              .depth = depth,
              .accumulate = adds});
  });
}

/// Rows × columns of y that one task computes.
struct Tile {
  int64_t rows, columns;
};

/// As large as leaves every thread some tasks: a task packs its weights anew.
Tile choose_tile(int64_t rows, int64_t out, int num_threads) {
  Tile tile{rows, max_columns};
  const auto tasks = [&] {
    return ((rows + tile.rows - 1) / tile.rows) * ((out + tile.columns - 1) / tile.columns);
  };
  const auto enough = [&] { return num_threads == 1 || tasks() >= 4 * num_threads; };
  while (!enough() && tile.rows > 512) tile.rows = (tile.rows + 1) / 2;
  while (!enough() && tile.columns > bf16_panel) tile.columns /= 2;
  return tile;
}

/// From weights packed block by block of the depth.
void many(const LinearArgs& args, const Operand& x, const device::Stream& stream,
          Workspace& workspace) {
  const int64_t rows = args.x.rows(), depth = args.x.size(1), out = args.y.size(1);
  const Tile tile = choose_tile(rows, out, stream.num_threads());
  const int64_t row_tiles = (rows + tile.rows - 1) / tile.rows;
  const int64_t column_tiles = (out + tile.columns - 1) / tile.columns;
  const int64_t num_blocks = std::max<int64_t>(1, (depth + max_depth - 1) / max_depth);
  const int64_t block_depth = std::max<int64_t>(2, (depth / num_blocks + 2) / 2 * 2);
  const int64_t packed_elements = block_depth * max_columns;
  workspace.reserve_threads(stream.num_threads(), Carver::bytes_of<uint16_t>(packed_elements));

  for_each_task(stream, row_tiles * column_tiles, [&](int64_t task, const Worker& worker) {
    const int64_t first_row = task % row_tiles * tile.rows;
    const int64_t end_row = std::min(rows, first_row + tile.rows);
    const int64_t column = task / row_tiles * tile.columns;
    const int64_t num_columns = std::min(tile.columns, out - column);
    auto* const packed = workspace.of_thread(worker.thread).take<uint16_t>(packed_elements);
    for (int64_t i = 0; i == 0 || i < depth; i += block_depth) {
      const int64_t part = std::min(block_depth, depth - i);
      pack_bf16(
          {weights_of(args, column) + i, args.weight.row_stride(), num_columns, part, packed});
      for (int64_t row = first_row; row < end_row; row += rows_per_poll) {
        const int64_t num_rows = std::min(rows_per_poll, end_row - row);
        const bool adds = i > 0 || begin_piece(args, row, num_rows, column, num_columns);
        gemm_bf16({.a = x.data + row * x.stride + i,
                   .a_stride = x.stride,
                   .b = packed,
                   .c = sums_of(args, row, column),
                   .c_stride = args.y.row_stride(),
                   .rows = num_rows,
                   .columns = num_columns,
                   .depth = part,
                   .accumulate = adds});
        worker.poll();
      }
    }
  });
}

}  // namespace

void linear_bf16(const LinearArgs& args, const device::Stream& stream, Workspace& workspace) {
  if (args.x.rows() == 0 || args.y.size(1) == 0) return;
  const Operand x = rounded(args.x, stream, workspace);
  if (args.x.rows() <= few_rows)
    few(args, x, stream);
  else
    many(args, x, stream, workspace);
}

}  // namespace pecia::kernels::cpu
