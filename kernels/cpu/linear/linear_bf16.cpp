// SPDX-License-Identifier: Apache-2.0
/// Linear in products of bf16 (bf16_kernels.hpp), of weights of bf16 or of codes: x is rounded once
/// for the op, where it is not bf16 already.

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/linear/linear_tiles.hpp"
#include "kernels/cpu/products/bf16_few_rows.hpp"
#include "kernels/cpu/products/bf16_kernels.hpp"
#include "kernels/cpu/products/bf16_native.hpp"
#include "kernels/cpu/products/code_products.hpp"
#include "kernels/cpu/shared/parallel.hpp"
#include "lib/core/codes.hpp"

namespace pecia::kernels::cpu {
namespace {

/// Up to how many rows packing does not pay; less where rows of x are long. Measured, weights in
/// memory: 64 rows of 576, 32 of 1536 and 20 of 4096 on Zen 5; on Zen 4 32 rows of 576 were faster
/// so, 48 a tenth slower, 64 the same.
int64_t few_rows(int64_t depth) {
  return std::clamp<int64_t>(48 * 1024 / std::max<int64_t>(1, depth), 16, 64);
}
// A packed block of weights, depth × columns, is 256 KiB: it lies in the second cache while all the
// rows of a task meet it; a tile of 14 rows, 28 KiB, in the first.
constexpr int64_t max_depth = 1024;
constexpr int64_t max_columns = 128;
// Codes of a panel of columns become numbers before they are packed.
constexpr int64_t row_of_numbers = max_depth;
static_assert(max_depth % int4_group == 0);
// Tiles of rows multiplied between two polls, in under 0.1 ms.
constexpr int64_t tiles_per_poll = 6;

/// The depth is cut into equal blocks of whole groups of codes.
int64_t depth_of_block(int64_t depth) {
  const int64_t groups = (depth + int4_group - 1) / int4_group;
  const int64_t blocks = std::max<int64_t>(1, (depth + max_depth - 1) / max_depth);
  return std::max<int64_t>(1, (groups + blocks - 1) / blocks) * int4_group;
}

/// Rows of bf16 that may be read one element past an odd end.
struct Operand {
  const uint16_t* data;
  int64_t stride;
};

/// In place where that is as good for `tiles` of rows, or for few.
Operand rounded(const TensorView& x, bool tiles, const device::Stream& stream,
                Workspace& workspace) {
  const int64_t rows = x.rows(), depth = x.size(1);
  const int64_t stride = stride_of_tiles(depth, size_of(DType::bf16));
  if (x.dtype() == DType::bf16 && depth % 2 == 0 &&
      !(tiles && share_a_set(x.row_stride(), size_of(DType::bf16))))
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

/// What is in a piece of y before the products are added; whether there is something.
bool begin_piece(const LinearArgs& args, int64_t row, int64_t num_rows, int64_t column,
                 int64_t num_columns) {
  const bool adds = args.accumulate == Accumulate::yes;
  if (!args.bias) return adds;
  begin_with_bias(args.bias, column, num_rows, num_columns, sums_of(args, row, column),
                  args.y.row_stride(), adds);
  return true;
}

CodeRows codes_of(const LinearArgs& args, int64_t column) {
  const DType type = args.weight.dtype();
  const int64_t scales = row_scales(type, args.x.size(1));
  return {args.weight.row(column), type, args.weight.row_stride(),
          args.weight_scales.as<float>() + column * scales, scales};
}

/// Nothing packed: a task reads its columns' weights once.
void few(const LinearArgs& args, const Operand& x, const device::Stream& stream) {
  const int64_t rows = args.x.rows(), depth = args.x.size(1), out = args.y.size(1);
  const int64_t grain = columns_of_few(out, depth, stream.num_threads(), 8);
  for_each_range(stream, out, grain, [&](int64_t begin, int64_t end) {
    const bool adds = begin_piece(args, 0, rows, begin, end - begin);
    if (is_code(args.weight.dtype()))
      return dot_codes({.a = x.data,
                        .a_stride = x.stride,
                        .b = codes_of(args, begin),
                        .c = sums_of(args, 0, begin),
                        .c_stride = args.y.row_stride(),
                        .rows = rows,
                        .columns = end - begin,
                        .depth = depth,
                        .accumulate = adds});
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

/// Weights [column, column + num_columns) from element `begin` of their depth on. What is stored as
/// codes goes through `numbers`, panel by panel.
void pack(const Bf16Kernel& kernel, const LinearArgs& args, int64_t column, int64_t num_columns,
          int64_t begin, int64_t depth, uint16_t* numbers, uint16_t* packed) {
  if (!is_code(args.weight.dtype()))
    return kernel.pack(
        {weights_of(args, column) + begin, args.weight.row_stride(), num_columns, depth, packed});
  for (int64_t done = 0; done < num_columns; done += bf16_panel) {
    const int64_t width = std::min(bf16_panel, num_columns - done);
    codes_to_bf16(codes_of(args, column + done), width, begin, depth, numbers, row_of_numbers);
    kernel.pack(
        {numbers, row_of_numbers, width, depth, packed + done * kernel.packed_depth(depth)});
  }
}

/// From weights packed block by block of the depth.
void many(const Bf16Kernel& kernel, const LinearArgs& args, const Operand& x,
          const device::Stream& stream, Workspace& workspace) {
  const int64_t rows = args.x.rows(), depth = args.x.size(1), out = args.y.size(1);
  const LinearTile tile =
      choose_tile(rows, out, stream.num_threads(), {rows, max_columns}, bf16_panel);
  const int64_t row_tiles = (rows + tile.rows - 1) / tile.rows;
  const int64_t column_tiles = (out + tile.columns - 1) / tile.columns;
  const int64_t block_depth = depth_of_block(depth);
  const int64_t packed_elements = kernel.packed_depth(block_depth) * max_columns;
  const int64_t rows_per_poll = tiles_per_poll * kernel.tile_rows;
  const int64_t number_elements = is_code(args.weight.dtype()) ? bf16_panel * row_of_numbers : 0;
  workspace.reserve_threads(stream.num_threads(), Carver::bytes_of<uint16_t>(packed_elements) +
                                                      Carver::bytes_of<uint16_t>(number_elements));

  for_each_task(stream, row_tiles * column_tiles, [&](int64_t task, const Worker& worker) {
    const int64_t first_row = task % row_tiles * tile.rows;
    const int64_t end_row = std::min(rows, first_row + tile.rows);
    const int64_t column = task / row_tiles * tile.columns;
    const int64_t num_columns = std::min(tile.columns, out - column);
    const InThread use(kernel);
    Carver scratch = workspace.of_thread(worker.thread);
    auto* const packed = scratch.take<uint16_t>(packed_elements);
    auto* const numbers = scratch.take<uint16_t>(number_elements);
    for (int64_t i = 0; i == 0 || i < depth; i += block_depth) {
      const int64_t part = std::min(block_depth, depth - i);
      pack(kernel, args, column, num_columns, i, part, numbers, packed);
      for (int64_t row = first_row; row < end_row; row += rows_per_poll) {
        const int64_t num_rows = std::min(rows_per_poll, end_row - row);
        const bool adds = i > 0 || begin_piece(args, row, num_rows, column, num_columns);
        kernel.multiply({.a = x.data + row * x.stride + i,
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

void linear_bf16(const Bf16Kernel& kernel, const LinearArgs& args, const device::Stream& stream,
                 Workspace& workspace) {
  if (args.x.rows() == 0 || args.y.size(1) == 0) return;
  const bool tiles = args.x.rows() > few_rows(args.x.size(1));
  const Operand x = rounded(args.x, tiles, stream, workspace);
  if (tiles)
    many(kernel, args, x, stream, workspace);
  else
    few(args, x, stream);
}

}  // namespace pecia::kernels::cpu
