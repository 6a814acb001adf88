// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/pass.hpp"

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/ring.hpp"
#include "lib/ranks/parallel/sharding.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"

namespace pecia::parallel {

std::vector<GlobalRange> rows_of(const PassSequence& sequence, int num_ranks, int rank) {
  std::vector<GlobalRange> rows;
  const auto add = [&](int64_t begin, int64_t end) {
    if (begin >= end) return;
    if (!rows.empty() && rows.back().end == sequence.first + begin)
      rows.back().end = sequence.first + end;
    else
      rows.push_back({sequence.first + begin, sequence.first + end});
  };
  const int virtual_ranks = sequence.virtual_ranks > 0 ? sequence.virtual_ranks : num_ranks;
  if (sequence.owner == PassSequence::balanced) {
    for (const GlobalRange& chunk : owned_chunks(sequence.count, num_ranks, rank, virtual_ranks))
      add(chunk.begin, chunk.end);
  } else if (sequence.owner == PassSequence::contiguous) {
    PECIA_CHECK(virtual_ranks == num_ranks, "contiguous rows for {} virtual ranks on {} ranks",
                virtual_ranks, num_ranks);
    const RowRange part = row_part({0, sequence.count}, num_ranks, rank);
    add(part.begin, part.end);
  } else if (sequence.virtual_ranks > 0 && sequence.count > 1) {
    for (int64_t row = 0; row < sequence.count; ++row)
      if (player_of(owner_after(sequence.owner, row), virtual_ranks, num_ranks) == rank)
        add(row, row + 1);
  } else if (player_of(sequence.owner, virtual_ranks, num_ranks) == rank) {
    add(0, sequence.count);
  }
  return rows;
}

int64_t num_rows(const std::vector<PassSequence>& pass, int num_ranks, int rank) {
  int64_t count = 0;
  for (const PassSequence& sequence : pass)
    for (const GlobalRange& range : rows_of(sequence, num_ranks, rank)) count += range.size();
  return count;
}

int row_owner(const PassSequence& sequence, int num_ranks, int64_t position) {
  for (int rank = 0; rank < num_ranks; ++rank)
    for (const GlobalRange& range : rows_of(sequence, num_ranks, rank))
      if (range.begin <= position && position < range.end) return rank;
  fail<InvalidArgument>("position {} is not in the pass: [{}, {})", position, sequence.first,
                        sequence.first + sequence.count);
}

}  // namespace pecia::parallel
