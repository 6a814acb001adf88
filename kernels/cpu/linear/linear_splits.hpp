// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Pieces of a product, and sums of pieces whose depth is cut into splits (LinearArgs::splits), for
/// products of either type.

#include <bit>

#include "kernels/api/linear.hpp"
#include "kernels/cpu/shared/workspace.hpp"

namespace pecia::kernels::cpu {

/// Rows × columns of y, summed over elements [begin, end) of the depth.
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

inline Piece whole_depth(const LinearArgs& args, int64_t row, int64_t num_rows, int64_t column,
                         int64_t num_columns) {
  return {row, num_rows, column, num_columns, 0, args.x.size(1)};
}

/// Throws Unsupported for a row-invariant product with codes that have none.
void require_row_invariant(const LinearArgs& args);

/// Writes what the target begins with, before products are added to it, if it begins with a bias.
void put_bias(const LinearArgs& args, const Piece& piece, const Target& target);

/// Counts the scratch bytes of `compute` for a piece of `rows` × `columns`: one pending sum for
/// each level of the tree.
int64_t split_scratch_bytes(const LinearArgs& args, int64_t rows, int64_t columns);

/// to.c += from.c for the rows and columns of a piece.
void add_piece(const Piece& piece, const Target& from, const Target& to);

inline Target waiting_sum(const Piece& piece, Carver& scratch) {
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
  add_piece(piece, right, to);
}

/// Computes a piece of y by multiply(piece, target), in one or in splits. `multiply` begins with
/// what the target begins with. Where it sums splits itself it has them all in one piece.
template <typename Multiply>
void compute(const LinearArgs& args, const Piece& piece, Carver scratch, const Multiply& multiply,
             bool sums_splits = false) {
  const Target y{static_cast<float*>(args.y.row(piece.row)) + piece.column, args.y.row_stride(),
                 static_cast<bool>(args.bias), args.accumulate == Accumulate::yes};
  if (args.splits == 1 || sums_splits) return multiply(piece, y);
  if (!y.with_c) return sum_splits(args, piece, 0, args.splits, y, scratch, multiply);
  const Target sum = waiting_sum(piece, scratch);
  sum_splits(args, piece, 0, args.splits, sum, scratch, multiply);
  add_piece(piece, sum, y);
}

}  // namespace pecia::kernels::cpu
