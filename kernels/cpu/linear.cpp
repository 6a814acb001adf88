#include <bit>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/dot.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/ordered_dot.hpp"
#include "kernels/cpu/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

// Measured crossover at depths 576 and 4096: 48 rows with AVX-512, 24 to 32 with AVX2 (Zen 5).
constexpr int64_t few_rows = 32;
// A packed block of weights, depth × columns fp32, is 320 KiB: it lies in the second cache while
// all the rows of a task meet it.
constexpr int64_t max_depth = 640;
constexpr int64_t max_columns = 128;
// Rows multiplied between two polls: whole tiles of every vector width, under 0.1 ms.
constexpr int64_t rows_per_poll = 84;

// Rows of a task whose products are summed in splits: the sums that wait take 256 KiB each.
constexpr int64_t most_split_rows = 512;

/// What one task computes: rows × columns of y, from elements [begin, end) of the depth.
struct Piece {
  int64_t row, num_rows, column, num_columns;
  int64_t begin, end;
};

/// Where the sums of a piece go, and what they begin with.
struct Target {
  float* c;  ///< of the piece's first row and column
  int64_t stride;
  bool with_bias, with_c;

  bool begins_with_something() const { return with_bias || with_c; }
};

Piece whole_depth(const LinearArgs& args, int64_t row, int64_t num_rows, int64_t column,
                  int64_t num_columns) {
  return {row, num_rows, column, num_columns, 0, args.x.size(1)};
}

Target result_of(const LinearArgs& args, const Piece& piece) {
  return {static_cast<float*>(args.y.row(piece.row)) + piece.column, args.y.row_stride(),
          static_cast<bool>(args.bias), args.accumulate == Accumulate::yes};
}

const float* x_of(const LinearArgs& args, const Piece& piece) {
  return static_cast<const float*>(args.x.row(piece.row)) + piece.begin;
}

const char* weight_of(const LinearArgs& args, const Piece& piece) {
  return static_cast<const char*>(args.weight.row(piece.column)) +
         piece.begin * size_of(args.weight.dtype());
}

/// What the target begins with, before the products are added.
void begin_with_bias(const LinearArgs& args, const Piece& piece, const Target& target) {
  const int64_t element_bytes = size_of(args.bias.dtype());
  for (int64_t done = 0; done < piece.num_columns; done += max_columns) {
    const int64_t width = std::min(max_columns, piece.num_columns - done);
    float bias[max_columns];
    widen_rows(static_cast<const char*>(args.bias.data()) + (piece.column + done) * element_bytes,
               args.bias.dtype(), width, 1, width, bias, width);
    for (int64_t r = 0; r < piece.num_rows; ++r) {
      float* const c = target.c + r * target.stride + done;
      for (int64_t o = 0; o < width; ++o) c[o] = target.with_c ? c[o] + bias[o] : bias[o];
    }
  }
}

/// A product by `dot`, nothing packed.
void multiply_few(const LinearArgs& args, const Piece& piece, const Target& target,
                  void (*dot)(const DotArgs&)) {
  if (target.with_bias) begin_with_bias(args, piece, target);
  dot({.a = x_of(args, piece),
       .a_stride = args.x.row_stride(),
       .b = weight_of(args, piece),
       .b_dtype = args.weight.dtype(),
       .b_stride = args.weight.row_stride(),
       .c = target.c,
       .c_stride = target.stride,
       .rows = piece.num_rows,
       .columns = piece.num_columns,
       .depth = piece.end - piece.begin,
       .accumulate = target.begins_with_something()});
}

/// A product from weights packed block by block of the depth.
void multiply_many(const LinearArgs& args, const Piece& piece, const Target& target, float* packed,
                   const Worker& worker) {
  const int64_t depth = piece.end - piece.begin;
  const int64_t num_blocks = std::max<int64_t>(1, (depth + max_depth - 1) / max_depth);
  for (int64_t block = 0; block < num_blocks; ++block) {
    Piece part = piece;
    part.begin = piece.begin + depth * block / num_blocks;
    part.end = piece.begin + depth * (block + 1) / num_blocks;
    pack_transposed({.rows = weight_of(args, part),
                     .dtype = args.weight.dtype(),
                     .row_stride = args.weight.row_stride(),
                     .columns = part.num_columns,
                     .depth = part.end - part.begin,
                     .packed = packed});
    for (int64_t done = 0; done < piece.num_rows; done += rows_per_poll) {
      part.row = piece.row + done;
      part.num_rows = std::min(rows_per_poll, piece.num_rows - done);
      Target to = target;
      to.c += done * target.stride;
      if (block == 0 && to.with_bias) begin_with_bias(args, part, to);
      gemm({.a = x_of(args, part),
            .a_stride = args.x.row_stride(),
            .b = packed,
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

void add(const Piece& piece, const Target& from, const Target& to) {
  for (int64_t r = 0; r < piece.num_rows; ++r)
    for (int64_t o = 0; o < piece.num_columns; ++o)
      to.c[r * to.stride + o] += from.c[r * from.stride + o];
}

/// Of `columns` at most in a piece of so many rows: one sum waits for each level of the tree.
int64_t split_scratch_bytes(const LinearArgs& args, int64_t rows, int64_t columns) {
  const int levels = std::bit_width(static_cast<unsigned>(args.splits));
  return args.splits == 1 ? 0 : levels * Carver::bytes_of<float>(rows * columns);
}

Target waiting_sum(const Piece& piece, Carver& scratch) {
  return {scratch.take<float>(piece.num_rows * piece.num_columns), piece.num_columns, false, false};
}

/// Splits [first, first + count) of the piece, each by `multiply`, summed in pairs.
template <typename Multiply>
void sum_splits(const LinearArgs& args, const Piece& piece, int first, int count, Target to,
                Carver scratch, const Multiply& multiply) {
  if (count == 1) {
    const int64_t width = args.x.size(1) / args.splits;
    Piece split = piece;
    split.begin = first * width;
    split.end = split.begin + width;
    to.with_bias = first == 0 && args.bias;
    return multiply(split, to);
  }
  const int half = count / 2;
  sum_splits(args, piece, first, half, to, scratch, multiply);
  const Target right = waiting_sum(piece, scratch);
  sum_splits(args, piece, first + half, half, right, scratch, multiply);
  add(piece, right, to);
}

/// The piece of y by `multiply`, in one or in splits.
template <typename Multiply>
void compute(const LinearArgs& args, const Piece& piece, Carver scratch, const Multiply& multiply) {
  const Target y = result_of(args, piece);
  if (args.splits == 1) return multiply(piece, y);
  if (!y.with_c) return sum_splits(args, piece, 0, args.splits, y, scratch, multiply);
  const Target sum = waiting_sum(piece, scratch);
  sum_splits(args, piece, 0, args.splits, sum, scratch, multiply);
  add(piece, sum, y);
}

/// The first `out` columns of y by `dot`, in tasks of whole multiples of `unit` columns.
void few(const LinearArgs& args, const device::Stream& stream, Workspace& workspace, int64_t out,
         int64_t unit, void (*dot)(const DotArgs&)) {
  const int64_t rows = args.x.rows();
  const int64_t even_share = (out + 4 * stream.num_threads() - 1) / (4 * stream.num_threads());
  const int64_t least = std::max(rows_per_task(args.x.size(1)), even_share);
  const int64_t grain = (least + unit - 1) / unit * unit;
  workspace.reserve_threads(stream.num_threads(), split_scratch_bytes(args, rows, max_columns));
  const auto multiply = [&](const Piece& piece, const Target& target) {
    multiply_few(args, piece, target, dot);
  };
  for_each_task(stream, (out + grain - 1) / grain, [&](int64_t task, const Worker& worker) {
    const int64_t end = std::min(out, (task + 1) * grain);
    const int64_t step = args.splits == 1 ? grain : max_columns;
    for (int64_t column = task * grain; column < end; column += step)
      compute(args, whole_depth(args, 0, rows, column, std::min(step, end - column)),
              workspace.of_thread(worker.thread), multiply);
  });
}

/// Rows × columns of y that one task computes.
struct Tile {
  int64_t rows, columns;
};

/// As large as leaves every thread some tasks: a task packs its weights anew.
Tile choose_tile(const LinearArgs& args, int64_t out, int num_threads) {
  const int64_t rows = args.x.rows();
  Tile tile{args.splits == 1 ? rows : std::min(rows, most_split_rows), max_columns};
  const auto tasks = [&] {
    return ((rows + tile.rows - 1) / tile.rows) * ((out + tile.columns - 1) / tile.columns);
  };
  const auto enough = [&] { return num_threads == 1 || tasks() >= 4 * num_threads; };
  while (!enough() && tile.rows > 512) tile.rows = (tile.rows + 1) / 2;
  while (!enough() && tile.columns > panel_columns()) tile.columns /= 2;
  return tile;
}

/// Columns [first, …) of y, from packed weights.
void many(const LinearArgs& args, const device::Stream& stream, Workspace& workspace,
          int64_t first) {
  const int64_t rows = args.x.rows(), out = args.y.size(1);
  const Tile tile = choose_tile(args, out - first, stream.num_threads());
  const int64_t row_tiles = (rows + tile.rows - 1) / tile.rows;
  const int64_t column_tiles = (out - first + tile.columns - 1) / tile.columns;
  constexpr int64_t packed_elements = max_depth * max_columns;
  workspace.reserve_threads(stream.num_threads(),
                            Carver::bytes_of<float>(packed_elements) +
                                split_scratch_bytes(args, tile.rows, tile.columns));

  for_each_task(stream, row_tiles * column_tiles, [&](int64_t task, const Worker& worker) {
    const int64_t row = task % row_tiles * tile.rows;
    const int64_t column = first + task / row_tiles * tile.columns;
    Carver scratch = workspace.of_thread(worker.thread);
    auto* const packed = scratch.take<float>(packed_elements);
    compute(args,
            whole_depth(args, row, std::min(tile.rows, rows - row), column,
                        std::min(tile.columns, out - column)),
            scratch, [&](const Piece& piece, const Target& target) {
              multiply_many(args, piece, target, packed, worker);
            });
  });
}

/// Every split of an element is one chain of fused multiply-adds in order of depth, whichever way
/// is taken.
void row_invariant(const LinearArgs& args, const device::Stream& stream, Workspace& workspace) {
  const int64_t out = args.y.size(1), unit = panel_columns();
  const int64_t whole =
      args.x.rows() <= most_ordered_rows(args.weight.dtype()) ? out / unit * unit : 0;
  if (whole > 0) few(args, stream, workspace, whole, unit, ordered_dot_rows);
  if (whole < out) many(args, stream, workspace, whole);
}

}  // namespace

void linear(const LinearArgs& args, const device::Stream& stream, Workspace& workspace) {
  if (args.x.dtype() != DType::fp32 || args.weight.dtype() == DType::fp8)
    fail<Unsupported>(
        "the CPU backend multiplies rows of fp32 with weights of fp32, bf16 or fp16, not rows of "
        "{} "
        "with weights of {}",
        name_of(args.x.dtype()), name_of(args.weight.dtype()));
  if (args.x.rows() == 0 || args.y.size(1) == 0) return;
  if (args.row_invariant == RowInvariant::yes)
    row_invariant(args, stream, workspace);
  else if (args.x.rows() <= few_rows)
    few(args, stream, workspace, args.y.size(1), 8, dot_rows);
  else
    many(args, stream, workspace, 0);
}

}  // namespace pecia::kernels::cpu
