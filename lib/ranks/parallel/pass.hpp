// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A pass over the model. It says which new tokens of which sequences the pass computes, and on
/// which ranks their rows lie.

#include <cstdint>
#include <vector>

#include "lib/ranks/parallel/ranges.hpp"

namespace pecia::parallel {

using SequenceId = int64_t;

/// What travels between context-parallel ranks. `pass_kv` sends keys and values round the ring.
/// `pass_q` sends queries round the ring. `broadcast_q` sends queries straight to the ranks that
/// hold keys of their sequence. `levels` sends tokens to the ranks that attend them at a level of
/// sparse attention (levels.hpp).
enum class AttentionExchange : uint8_t { pass_kv, pass_q, broadcast_q, levels };

/// The new tokens of one sequence in one pass. `first` is also the number of tokens that are cached
/// already.
struct PassSequence {
  static constexpr int32_t balanced = -1, contiguous = -2;

  SequenceId sequence = 0;
  int64_t first = 0;  ///< global position of the first new token
  int64_t count = 0;  ///< new tokens
  /// The one rank that has all rows. With `balanced`, the rows are 2N chunks, two on each rank. With
  /// `contiguous` they are N parts, so that near rows are on near ranks. A virtual rank has the first
  /// row, and the others go on to those after it (owner_after).
  int32_t owner = balanced;
  /// If positive, N is this number and `owner` is a virtual rank (virtual_ranks.hpp).
  int32_t virtual_ranks = 0;

  /// Whether all ranks have a part of the rows.
  bool is_shared() const { return owner < 0; }
};

/// Returns the positions of the rows that `rank` of `num_ranks` has, in ascending order. They are at
/// most two ranges, or one for each row that a virtual rank owns. No range is empty.
///
///     first 10, 8 tokens, balanced on 2 ranks
///                                    rank 0: [10,12) [16,18)     rank 1: [12,14) [14,16)
///     first 10, 5 tokens, contiguous rank 0: [10,12)             rank 1: [12,15)
///     first 10, 1 token, owner 1     rank 0: nothing             rank 1: [10,11)
///     3 tokens, owner 0 of 8 virtual ranks
///                                    rank 0: [10,11) [12,13)     rank 1: [11,12)
std::vector<GlobalRange> rows_of(const PassSequence& sequence, int num_ranks, int rank);

/// Counts the rows of all sequences of a pass on `rank`.
int64_t num_rows(const std::vector<PassSequence>& pass, int num_ranks, int rank);

/// Returns the rank that has the row of a position.
int row_owner(const PassSequence& sequence, int num_ranks, int64_t position);

}  // namespace pecia::parallel
