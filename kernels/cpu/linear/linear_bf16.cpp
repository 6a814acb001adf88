// SPDX-License-Identifier: Apache-2.0
/// Linear in products of bf16 (bf16_kernels.hpp), of weights of bf16 or of codes: x is rounded once
/// for the op, where it is not bf16 already. A sum's bits do not depend on the number of rows, by
/// vectors in any case, by tiles with RowInvariant::yes.

#include "kernels/api/measured_constants.hpp"
#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/linear/linear_packed.hpp"
#include "kernels/cpu/linear/linear_splits.hpp"
#include "kernels/cpu/linear/linear_tiles.hpp"
#include "kernels/cpu/products/bf16_few_rows.hpp"
#include "kernels/cpu/products/bf16_kernels.hpp"
#include "kernels/cpu/products/bf16_native.hpp"
#include "kernels/cpu/products/lane_dot.hpp"
#include "kernels/cpu/products/weight_panels.hpp"
#include "kernels/cpu/shared/parallel.hpp"
#include "lib/base/core/codes.hpp"

namespace pecia::kernels::cpu {
namespace {

/// Largest block of packed weights, in elements of depth and columns.
struct Packed {
  int64_t depth, columns;
};
// Few rows meet a block of 24 KiB in the first cache, where it was packed a moment before.
constexpr Packed for_few{384, bf16_panel};
// Many rows meet a block of 256 KiB in the second cache, and a tile of 14 rows, 28 KiB, in the
// first.
MeasuredConstant most_depth_of_many("linear.block_depth", 1024, {512, 2048});
MeasuredConstant most_columns_of_many("linear.block_columns", 128, {64, 256});
static_assert(for_few.depth % int4_group == 0);
// Tiles of rows multiplied between two polls, in under 0.1 ms.
constexpr int64_t tiles_per_poll = 6;
// Rows of a task of many whose products are summed in splits: the sums that wait take 128 KiB each.
constexpr int64_t most_split_rows = 256;
// Rows so long are summed in splits tile by tile, from panels that are there: a panel of 256 KiB.
constexpr int64_t most_depth_of_tiles = 4096;

// Tiles of rows of a task whose columns, 512 KiB at most, stay in the second cache for the next one.
// Measured on Zen 4, two threads, 512 rows of a whole model: 6 % faster than tasks of all rows.
MeasuredConstant tiles_of_short_task("linear.tiles_of_task", 3, {2, 6});
constexpr int64_t most_depth_of_short_tasks = 2048;

/// Up to how many rows of bf16 weights sums over lanes are faster, with nothing to transpose.
constexpr int64_t most_bf16_lane_rows = 2;
/// Up to how many rows it pays that every task has all rows of codes. Packing pays earlier where
/// rows of x are long. Measured, weights in memory: 64 rows of 576, 32 of 1536 and 20 of 4096 on Zen
/// 5; on Zen 4 32 rows of 576 were faster so, 48 a tenth slower, 64 the same.
int64_t most_few_of_codes(int64_t depth) {
  return std::clamp<int64_t>(48 * 1024 / std::max<int64_t>(1, depth), 16, 64);
}

/// The depth of a piece is cut into equal blocks, of whole groups of codes, or of what a tile takes
/// at once. Where the cuts are changes no bit (bf16_kernels.hpp).
int64_t depth_of_block(const LinearArgs& args, int64_t most) {
  const int64_t depth = args.x.size(1) / args.splits;
  const int64_t unit = is_code(args.weight.dtype()) ? int4_group : bf16_depth;
  const int64_t units = (depth + unit - 1) / unit, most_units = most / unit;
  const int64_t blocks = std::max<int64_t>(1, (units + most_units - 1) / most_units);
  return std::max<int64_t>(1, (units + blocks - 1) / blocks) * unit;
}

/// Whether a kernel sums the splits itself: from panels that are there, without a bias, with which
/// the first split alone would begin, and where rows are so short that a panel stays in the second
/// cache.
bool sums_splits(const Bf16Kernel& kernel, const LinearArgs& args, const Panels& panels) {
  return args.splits > 1 && args.splits <= most_splits && kernel.sums_splits && panels &&
         !args.bias && args.x.size(1) <= most_depth_of_tiles;
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

CodeRows codes_of(const LinearArgs& args, int64_t column) {
  const TensorView& scales = args.weight_scales;
  CodeRows rows{args.weight.row(column), args.weight.dtype(), args.weight.row_stride(),
                scales.row(column), scales.row_stride() * size_of(scales.dtype())};
  if (rows.dtype == DType::int4)
    rows.shared_by = int4_shared_by(scales.size(1), args.weight.size(1));
  rows.factor = args.weight_factor;
  return rows;
}

/// Scratch of a thread.
struct Scratch {
  uint16_t *packed, *numbers;  ///< numbers: a panel of codes, before it is packed
};

/// Multiplies pieces of one call, from panels that are there, or from weights packed block by block.
class Multiply {
 public:
  Multiply(const Bf16Kernel& kernel, const LinearArgs& args, const Operand& x, const Packed& most,
           const Panels& panels)
      : kernel_(kernel),
        args_(args),
        x_(x),
        block_{depth_of_block(args, most.depth), most.columns},
        panels_(panels),
        sums_splits_(cpu::sums_splits(kernel, args, panels)) {
    if (!sums_splits_) return;
    const int64_t columns = most.depth * most.columns / args.x.size(1) / bf16_panel * bf16_panel;
    block_ = {args.x.size(1), std::clamp(columns, bf16_panel, most.columns)};
  }

  int64_t most_columns() const { return block_.columns; }
  bool sums_splits() const { return sums_splits_; }

  int64_t scratch_bytes() const {
    return Carver::bytes_of<uint16_t>(packed_elements()) + Carver::bytes_of<uint16_t>(numbers());
  }
  Scratch scratch(Carver& from) const {
    return {from.take<uint16_t>(packed_elements()), from.take<uint16_t>(numbers())};
  }

  /// The piece has at most block_.columns columns.
  void operator()(const Piece& piece, const Target& to, const Scratch& scratch,
                  const Worker& worker) const {
    const InThread use(kernel_);
    const int64_t rows_per_poll = tiles_per_poll * kernel_.tile_rows;
    for (int64_t begin = piece.begin; begin == piece.begin || begin < piece.end;
         begin += block_.depth) {
      const int64_t depth = std::min(block_.depth, piece.end - begin);
      if (!panels_) pack(piece, begin, depth, scratch);
      for (int64_t done = 0; done < piece.num_rows; done += rows_per_poll) {
        Piece part = piece;
        part.row += done;
        part.num_rows = std::min(rows_per_poll, piece.num_rows - done);
        Target sums = to;
        sums.c += done * to.stride;
        if (begin == piece.begin) put_bias(args_, part, sums);
        kernel_.multiply({.a = x_.data + part.row * x_.stride + begin,
                          .a_stride = x_.stride,
                          .b = panels_ ? panels_.at(piece.column, begin) : scratch.packed,
                          .c = sums.c,
                          .c_stride = sums.stride,
                          .rows = part.num_rows,
                          .columns = piece.num_columns,
                          .depth = depth,
                          .accumulate = begin > piece.begin || to.begins_with_something(),
                          .panel_depth = panels_.depth,
                          .splits = sums_splits_ ? args_.splits : 1});
        worker.poll();
      }
    }
  }

 private:
  int64_t packed_elements() const {
    return panels_ ? 0 : kernel_.packed_depth(block_.depth) * block_.columns;
  }
  int64_t numbers() const { return is_code(args_.weight.dtype()) ? bf16_panel * block_.depth : 0; }

  /// Elements [begin, begin + depth) of the weights of a piece. What is stored as codes goes through
  /// `numbers`, panel by panel.
  void pack(const Piece& piece, int64_t begin, int64_t depth, const Scratch& scratch) const {
    const TensorView& weight = args_.weight;
    if (!is_code(weight.dtype()))
      return kernel_.pack({static_cast<const uint16_t*>(weight.row(piece.column)) + begin,
                           weight.row_stride(), piece.num_columns, depth, scratch.packed});
    for (int64_t done = 0; done < piece.num_columns; done += bf16_panel) {
      const int64_t width = std::min(bf16_panel, piece.num_columns - done);
      codes_to_bf16(codes_of(args_, piece.column + done), width, begin, depth, scratch.numbers,
                    block_.depth);
      kernel_.pack({scratch.numbers, block_.depth, width, depth,
                    scratch.packed + done * kernel_.packed_depth(depth)});
    }
  }

  const Bf16Kernel& kernel_;
  const LinearArgs& args_;
  const Operand& x_;
  Packed block_;
  Panels panels_;
  bool sums_splits_;
};

/// Weights of bf16 by `dot_bf16`, in place.
class MultiplyInPlace {
 public:
  MultiplyInPlace(const LinearArgs& args, const Operand& x) : args_(args), x_(x) {}

  int64_t scratch_bytes() const { return 0; }
  std::nullptr_t scratch(Carver&) const { return nullptr; }
  bool sums_splits() const { return false; }
  void operator()(const Piece& piece, const Target& to, std::nullptr_t, const Worker&) const {
    const TensorView& weight = args_.weight;
    put_bias(args_, piece, to);
    const bool by_lanes =
        args_.row_invariant == RowInvariant::no && piece.num_rows <= most_bf16_lane_rows;
    (by_lanes ? lane_dot_bf16 : dot_bf16)(
        {.a = x_.data + piece.row * x_.stride + piece.begin,
         .a_stride = x_.stride,
         .b = static_cast<const uint16_t*>(weight.row(piece.column)) + piece.begin,
         .b_stride = weight.row_stride(),
         .c = to.c,
         .c_stride = to.stride,
         .rows = piece.num_rows,
         .columns = piece.num_columns,
         .depth = piece.end - piece.begin,
         .accumulate = to.begins_with_something(),
         .ahead = ahead_of(piece)});
  }

 private:
  /// A split's columns are not read one after the other: the next split of the same columns comes
  /// first. So the next columns are asked for, or the next split where they are too far away.
  int64_t ahead_of(const Piece& piece) const {
    if (args_.splits == 1) return 0;
    constexpr int64_t most = 128 * 1024;
    const int64_t columns = piece.num_columns * args_.weight.row_stride();
    return columns <= most ? columns : piece.end - piece.begin;
  }

  const LinearArgs& args_;
  const Operand& x_;
};

/// Weights of bf16 by `dot_panels`. The bits are those of dot_bf16 for any number of rows.
class MultiplyPanels {
 public:
  MultiplyPanels(const LinearArgs& args, const Operand& x, const Panels& panels)
      : args_(args),
        x_(x),
        panels_(panels),
        sums_splits_(cpu::sums_splits(bf16_vectors(), args, panels)) {}

  int64_t scratch_bytes() const { return 0; }
  std::nullptr_t scratch(Carver&) const { return nullptr; }
  void operator()(const Piece& piece, const Target& to, std::nullptr_t, const Worker&) const {
    put_bias(args_, piece, to);
    dot_panels({.a = x_.data + piece.row * x_.stride + piece.begin,
                .a_stride = x_.stride,
                .b = panels_.at(piece.column, piece.begin),
                .b_stride = panels_.depth,
                .c = to.c,
                .c_stride = to.stride,
                .rows = piece.num_rows,
                .columns = piece.num_columns,
                .depth = piece.end - piece.begin,
                .accumulate = to.begins_with_something(),
                .splits = sums_splits_ ? args_.splits : 1});
  }
  bool sums_splits() const { return sums_splits_; }

 private:
  const LinearArgs& args_;
  const Operand& x_;
  const Panels& panels_;
  bool sums_splits_;
};

/// Codes, which become numbers in registers.
class MultiplyCodes {
 public:
  MultiplyCodes(const LinearArgs& args, const Operand& x) : args_(args), x_(x) {}

  int64_t scratch_bytes() const { return 0; }
  std::nullptr_t scratch(Carver&) const { return nullptr; }
  bool sums_splits() const { return false; }
  void operator()(const Piece& piece, const Target& to, std::nullptr_t, const Worker&) const {
    put_bias(args_, piece, to);
    lane_dot_codes({.a = x_.data + piece.row * x_.stride,
                    .a_stride = x_.stride,
                    .b = codes_of(args_, piece.column),
                    .c = to.c,
                    .c_stride = to.stride,
                    .rows = piece.num_rows,
                    .columns = piece.num_columns,
                    .depth = piece.end,
                    .accumulate = to.begins_with_something()});
  }

 private:
  const LinearArgs& args_;
  const Operand& x_;
};

/// A task has all rows, so weights are read once. `columns`: of the pieces.
template <typename MultiplyFew>
void few(const MultiplyFew& multiply, int64_t columns, const LinearArgs& args,
         const device::Stream& stream, Workspace& workspace) {
  const int64_t rows = args.x.rows(), out = args.y.size(1);
  const int64_t grain = columns_of_few(out, args.x.size(1), stream.num_threads(), bf16_panel);
  const int64_t step = std::min(columns, grain);
  workspace.reserve_threads(
      stream.num_threads(),
      multiply.scratch_bytes() +
          (multiply.sums_splits() ? 0 : split_scratch_bytes(args, rows, step)));
  run_tasks<TaskShares>(stream, (out + grain - 1) / grain, [&](int64_t task, const Worker& worker) {
    Carver carver = workspace.of_thread(worker.thread);
    const auto scratch = multiply.scratch(carver);
    const int64_t end = std::min(out, (task + 1) * grain);
    for (int64_t column = task * grain; column < end; column += step)
      compute(
          args, whole_depth(args, 0, rows, column, std::min(step, end - column)), carver,
          [&](const Piece& piece, const Target& to) { multiply(piece, to, scratch, worker); },
          multiply.sums_splits());
  });
}

/// By the kernel only where its bits are wanted, or the bits of one chain from codes.
void few(const Bf16Kernel& kernel, const LinearArgs& args, const Operand& x, const Panels& panels,
         const device::Stream& stream, Workspace& workspace) {
  if (args.row_invariant == RowInvariant::yes &&
      (!kernel.bits_of_few_rows || is_code(args.weight.dtype())))
    return few(Multiply(kernel, args, x, for_few, panels), for_few.columns, args, stream,
               workspace);
  if (panels) {
    const MultiplyPanels multiply(args, x, panels);
    const bool in_pieces = args.splits > 1 && !multiply.sums_splits();
    return few(multiply, in_pieces ? for_few.columns : args.y.size(1), args, stream, workspace);
  }
  if (is_code(args.weight.dtype()))
    return few(MultiplyCodes(args, x), args.y.size(1), args, stream, workspace);
  few(MultiplyInPlace(args, x), args.splits == 1 ? args.y.size(1) : for_few.columns, args, stream,
      workspace);
}

/// Threads that share a product end together if its tasks are short, and panels in the second cache
/// serve task after task. Packing, and a panel that is too long, should serve many rows at once.
int64_t most_rows_of_task(const Multiply& multiply, const Bf16Kernel& kernel,
                          const LinearArgs& args, const Panels& panels, int num_threads) {
  const int64_t rows = args.x.rows();
  if (args.splits > 1 && !multiply.sums_splits()) return std::min(rows, most_split_rows);
  const bool stays = panels && args.x.size(1) <= most_depth_of_short_tasks;
  return stays && num_threads > 1 ? std::min(rows, tiles_of_short_task * kernel.tile_rows) : rows;
}

/// Tasks cut the rows, too, where they are enough for that.
void many(const Bf16Kernel& kernel, const LinearArgs& args, const Operand& x, const Panels& panels,
          const device::Stream& stream, Workspace& workspace) {
  const int64_t rows = args.x.rows(), out = args.y.size(1);
  const Packed most_packed{most_depth_of_many, most_columns_of_many};
  const Multiply multiply(kernel, args, x, most_packed, panels);
  const LinearTile most{most_rows_of_task(multiply, kernel, args, panels, stream.num_threads()),
                        multiply.most_columns()};
  const LinearTile tile = choose_tile(rows, out, stream.num_threads(), most, bf16_panel);
  const int64_t row_tiles = (rows + tile.rows - 1) / tile.rows;
  const int64_t column_tiles = (out + tile.columns - 1) / tile.columns;
  workspace.reserve_threads(
      stream.num_threads(),
      multiply.scratch_bytes() +
          (multiply.sums_splits() ? 0 : split_scratch_bytes(args, tile.rows, tile.columns)));
  for_each_task(stream, row_tiles * column_tiles, [&](int64_t task, const Worker& worker) {
    Carver carver = workspace.of_thread(worker.thread);
    const Scratch scratch = multiply.scratch(carver);
    const int64_t row = task % row_tiles * tile.rows, column = task / row_tiles * tile.columns;
    const Piece all = whole_depth(args, row, std::min(tile.rows, rows - row), column,
                                  std::min(tile.columns, out - column));
    compute(
        args, all, carver,
        [&](const Piece& piece, const Target& to) { multiply(piece, to, scratch, worker); },
        multiply.sums_splits());
  });
}

}  // namespace

void linear_bf16(const Bf16Kernel& kernel, const LinearArgs& args, const WeightPanels& weights,
                 PackedRows& rows, const device::Stream& stream, Workspace& workspace,
                 std::optional<int64_t> most_few) {
  require_row_invariant(args);
  if (args.x.rows() == 0 || args.y.size(1) == 0) return;
  const bool tiles = args.x.rows() > (is_code(args.weight.dtype())
                                          ? most_few_of_codes(args.x.size(1))
                                          : most_few.value_or(usual_most_few(MatmulKind::bf16)));
  const Panels panels = weights.of(args.weight, args.splits, kernel.depth_unit);
  if (tiles && panels && args.splits == 1 && kernel.multiply_square != nullptr)
    return linear_packed(kernel, args, panels, rows, stream, workspace);
  rows.forget();
  const Operand x = rounded(args.x, tiles, stream, workspace);
  if (tiles)
    many(kernel, args, x, panels, stream, workspace);
  else
    few(kernel, args, x, panels, stream, workspace);
}

}  // namespace pecia::kernels::cpu
