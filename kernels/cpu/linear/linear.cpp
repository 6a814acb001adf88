// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <vector>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/linear/linear_splits.hpp"
#include "kernels/cpu/linear/linear_tiles.hpp"
#include "kernels/cpu/products/code_rows.hpp"
#include "kernels/cpu/products/dot.hpp"
#include "kernels/cpu/products/gemm.hpp"
#include "kernels/cpu/products/ordered_dot.hpp"
#include "kernels/cpu/shared/parallel.hpp"
#include "lib/base/core/codes.hpp"

namespace pecia::kernels::cpu {
namespace {

// A packed block of weights, depth × columns fp32, is 320 KiB: it lies in the second cache while
// all the rows of a task meet it.
constexpr int64_t max_depth = 640;
constexpr int64_t max_columns = 128;
// Rows multiplied between two polls: whole tiles of every vector width, under 0.1 ms.
constexpr int64_t rows_per_poll = 84;

// Rows of a task whose products are summed in splits: the sums that wait take 256 KiB each.
constexpr int64_t most_split_rows = 512;

const float* x_of(const LinearArgs& args, const Piece& piece) {
  return static_cast<const float*>(args.x.row(piece.row)) + piece.begin;
}

/// Weights of a piece as products take them.
struct Weights {
  const void* rows;
  DType dtype;
  int64_t stride;
};

/// Scratch elements for a chunk of columns of quantised weights, dequantised.
int64_t elements_of_numbers(const LinearArgs& args, int64_t depth) {
  if (!is_code(args.weight.dtype())) return 0;
  return panel_columns() * (depth / int4_group + 2) * int4_group;
}

/// Columns of a piece whose weights are looked at together.
int64_t columns_of_chunk(const LinearArgs& args, const Piece& piece) {
  return is_code(args.weight.dtype()) ? std::min(panel_columns(), piece.num_columns)
                                      : piece.num_columns;
}

/// Of columns [first, first + count) of a piece; what is codes becomes numbers in `numbers`.
Weights weights_of(const LinearArgs& args, const Piece& piece, int64_t first, int64_t count,
                   float* numbers) {
  const TensorView& weight = args.weight;
  const DType type = weight.dtype();
  const int64_t column = piece.column + first;
  if (!is_code(type))
    return {static_cast<const char*>(weight.row(column)) + piece.begin * size_of(type), type,
            weight.row_stride()};
  const int64_t begin = piece.begin / int4_group * int4_group;
  const int64_t stride = (piece.end - begin + int4_group - 1) / int4_group * int4_group;
  const int64_t shared_by =
      type == DType::int4 ? int4_shared_by(args.weight_scales.size(1), weight.size(1)) : int4_group;
  for (int64_t o = 0; o < count; ++o)
    decode_row(weight.row(column + o), type, args.weight_scales.row(column + o), begin,
               piece.end - begin, numbers + o * stride, shared_by, args.weight_factor);
  return {numbers + (piece.begin - begin), DType::fp32, stride};
}

/// A product by `dot`, nothing packed.
void multiply_few(const LinearArgs& args, const Piece& piece, const Target& target, float* numbers,
                  void (*dot)(const DotArgs&)) {
  put_bias(args, piece, target);
  const int64_t chunk = columns_of_chunk(args, piece);
  for (int64_t o = 0; o < piece.num_columns; o += chunk) {
    const int64_t columns = std::min(chunk, piece.num_columns - o);
    const Weights weights = weights_of(args, piece, o, columns, numbers);
    dot({.a = x_of(args, piece),
         .a_stride = args.x.row_stride(),
         .b = weights.rows,
         .b_dtype = weights.dtype,
         .b_stride = weights.stride,
         .c = target.c + o,
         .c_stride = target.stride,
         .rows = piece.num_rows,
         .columns = columns,
         .depth = piece.end - piece.begin,
         .accumulate = target.begins_with_something()});
  }
}

/// Scratch of a thread that multiplies many rows.
struct Packing {
  float *packed, *numbers;
};

void pack(const LinearArgs& args, const Piece& part, const Packing& to) {
  const int64_t depth = part.end - part.begin, chunk = columns_of_chunk(args, part);
  for (int64_t o = 0; o < part.num_columns; o += chunk) {
    const int64_t columns = std::min(chunk, part.num_columns - o);
    const Weights weights = weights_of(args, part, o, columns, to.numbers);
    pack_transposed({.rows = weights.rows,
                     .dtype = weights.dtype,
                     .row_stride = weights.stride,
                     .columns = columns,
                     .depth = depth,
                     .packed = to.packed + o * depth});
  }
}

/// A product from weights packed block by block of the depth.
void multiply_many(const LinearArgs& args, const Piece& piece, const Target& target,
                   const Packing& packing, const Worker& worker) {
  const int64_t depth = piece.end - piece.begin;
  const int64_t num_blocks = std::max<int64_t>(1, (depth + max_depth - 1) / max_depth);
  for (int64_t block = 0; block < num_blocks; ++block) {
    Piece part = piece;
    part.begin = piece.begin + depth * block / num_blocks;
    part.end = piece.begin + depth * (block + 1) / num_blocks;
    pack(args, part, packing);
    for (int64_t done = 0; done < piece.num_rows; done += rows_per_poll) {
      part.row = piece.row + done;
      part.num_rows = std::min(rows_per_poll, piece.num_rows - done);
      Target to = target;
      to.c += done * target.stride;
      if (block == 0) put_bias(args, part, to);
      gemm({.a = x_of(args, part),
            .a_stride = args.x.row_stride(),
            .b = packing.packed,
            .b_row_stride = panel_columns(),
            .b_panel_stride = panel_columns() * (part.end - part.begin),
            .c = to.c,
            .c_stride = to.stride,
            .rows = part.num_rows,
            .columns = part.num_columns,
            .depth = part.end - part.begin,
            .accumulate = block > 0 || to.begins_with_something()});
      worker.poll();
    }
  }
}

/// Products of one shape, whose tensors are in different places.
struct Products {
  int64_t count;
  std::function<LinearArgs(int64_t)> at;
};

/// The first `out` columns of each y by `dot`, in tasks of whole multiples of `unit` columns.
void few(const Products& products, const device::Stream& stream, Workspace& workspace, int64_t out,
         int64_t unit, void (*dot)(const DotArgs&)) {
  const LinearArgs first = products.at(0);
  const int64_t rows = first.x.rows(), depth = first.x.size(1);
  const int64_t most = (out + unit - 1) / unit * unit;
  const int64_t grain =
      std::min(most, columns_of_few(out * products.count, depth, stream.num_threads(), unit));
  const int64_t tasks = (out + grain - 1) / grain;
  const int64_t number_elements = elements_of_numbers(first, depth);
  workspace.reserve_threads(
      stream.num_threads(),
      Carver::bytes_of<float>(number_elements) + split_scratch_bytes(first, rows, max_columns));
  for_each_task(stream, products.count * tasks, [&](int64_t number, const Worker& worker) {
    const LinearArgs args = products.at(number / tasks);
    const int64_t task = number % tasks;
    Carver scratch = workspace.of_thread(worker.thread);
    auto* const numbers = scratch.take<float>(number_elements);
    const auto multiply = [&](const Piece& piece, const Target& target) {
      multiply_few(args, piece, target, numbers, dot);
    };
    const int64_t end = std::min(out, (task + 1) * grain);
    const int64_t step = args.splits == 1 ? grain : max_columns;
    for (int64_t column = task * grain; column < end; column += step)
      compute(args, whole_depth(args, 0, rows, column, std::min(step, end - column)), scratch,
              multiply);
  });
}

/// The rows of each product where tiles read them well: as they are, or copied.
std::vector<TensorView> rows_for_tiles(const Products& products, const device::Stream& stream,
                                       Workspace& workspace) {
  std::vector<TensorView> all;
  for (int64_t i = 0; i < products.count; ++i) all.push_back(products.at(i).x);
  const int64_t rows = all[0].rows(), depth = all[0].size(1);
  if (!share_a_set(all[0].row_stride(), sizeof(float))) return all;
  const bool alike = all.front().data() == all.back().data();
  const int64_t copies = alike ? 1 : products.count;
  const int64_t stride = stride_of_tiles(depth, sizeof(float));
  workspace.reserve_shared(Carver::bytes_of<float>(copies * rows * stride));
  auto* const to = workspace.shared().take<float>(copies * rows * stride);
  for_each_range(stream, copies * rows, rows_per_task(depth), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      std::copy_n(static_cast<const float*>(all[row / rows].row(row % rows)), depth,
                  to + row * stride);
  });
  const TensorView copied(to, DType::fp32, {copies * rows, stride});
  for (int64_t i = 0; i < products.count; ++i)
    all[i] = copied.slice_rows(alike ? 0 : i * rows, rows).slice_columns(0, depth);
  return all;
}

/// Columns [first, …) of each y, from packed weights.
void many(const Products& products, const device::Stream& stream, Workspace& workspace,
          int64_t first) {
  const std::vector<TensorView> x = rows_for_tiles(products, stream, workspace);
  const LinearArgs one = products.at(0);
  const int64_t rows = one.x.rows(), out = one.y.size(1);
  const LinearTile most{one.splits == 1 ? rows : std::min(rows, most_split_rows), max_columns};
  const auto threads_of_product =
      static_cast<int>((stream.num_threads() + products.count - 1) / products.count);
  const LinearTile tile = choose_tile(rows, out - first, threads_of_product, most, panel_columns());
  const int64_t row_tiles = (rows + tile.rows - 1) / tile.rows;
  const int64_t column_tiles = (out - first + tile.columns - 1) / tile.columns;
  constexpr int64_t packed_elements = max_depth * max_columns;
  const int64_t number_elements = elements_of_numbers(one, max_depth);
  workspace.reserve_threads(stream.num_threads(),
                            Carver::bytes_of<float>(packed_elements) +
                                Carver::bytes_of<float>(number_elements) +
                                split_scratch_bytes(one, tile.rows, tile.columns));

  const int64_t tiles = row_tiles * column_tiles;
  for_each_task(stream, products.count * tiles, [&](int64_t number, const Worker& worker) {
    LinearArgs args = products.at(number / tiles);
    args.x = x[number / tiles];
    const int64_t task = number % tiles;
    const int64_t row = task % row_tiles * tile.rows;
    const int64_t column = first + task / row_tiles * tile.columns;
    Carver scratch = workspace.of_thread(worker.thread);
    const Packing packing{scratch.take<float>(packed_elements),
                          scratch.take<float>(number_elements)};
    compute(args,
            whole_depth(args, row, std::min(tile.rows, rows - row), column,
                        std::min(tile.columns, out - column)),
            scratch, [&](const Piece& piece, const Target& target) {
              multiply_many(args, piece, target, packing, worker);
            });
  });
}

/// Every split of an element is one chain of fused multiply-adds in order of depth, whichever way
/// is taken.
void row_invariant(const Products& products, const device::Stream& stream, Workspace& workspace) {
  const LinearArgs args = products.at(0);
  const int64_t out = args.y.size(1), unit = panel_columns();
  const int64_t whole =
      args.x.rows() <= most_ordered_rows(args.weight.dtype()) ? out / unit * unit : 0;
  if (whole > 0) few(products, stream, workspace, whole, unit, ordered_dot_rows);
  if (whole < out) many(products, stream, workspace, whole);
}

void multiply(const Products& products, const device::Stream& stream, Workspace& workspace,
              int64_t most_few) {
  const LinearArgs args = products.at(0);
  const DType type = args.weight.dtype();
  if (args.x.dtype() != DType::fp32 || type == DType::fp8)
    fail<Unsupported>(
        "the CPU backend multiplies rows of fp32 with weights of fp32, bf16, fp16, int8, int4, "
        "mxfp4 or nvfp4, not rows of {} with weights of {}",
        name_of(args.x.dtype()), name_of(type));
  require_row_invariant(args);
  if (args.x.rows() == 0 || args.y.size(1) == 0) return;
  if (args.row_invariant == RowInvariant::yes)
    row_invariant(products, stream, workspace);
  else if (args.x.rows() <= most_few)
    few(products, stream, workspace, args.y.size(1), 8, dot_rows);
  else
    many(products, stream, workspace, 0);
}

}  // namespace

void linear(const LinearArgs& args, const device::Stream& stream, Workspace& workspace,
            int64_t most_few) {
  multiply({1, [&](int64_t) { return args; }}, stream, workspace, most_few);
}

void head_linear(const HeadLinearArgs& args, const device::Stream& stream, Workspace& workspace,
                 int64_t most_few) {
  multiply({args.heads, [&](int64_t head) { return linear_of_head(args, head); }}, stream,
           workspace, most_few);
}

}  // namespace pecia::kernels::cpu
