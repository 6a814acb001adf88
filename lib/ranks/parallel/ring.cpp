// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/ring.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::parallel {

std::array<GlobalRange, 2> owned_chunks(int64_t num_tokens, int num_ranks, int rank) {
  return owned_chunks(num_tokens, num_ranks, rank, num_ranks);
}

std::array<GlobalRange, 2> owned_chunks(int64_t num_tokens, int num_ranks, int rank,
                                        int virtual_ranks) {
  PECIA_CHECK(virtual_ranks % num_ranks == 0, "{} ranks cannot play {}", num_ranks, virtual_ranks);
  const int64_t num_chunks = 2 * int64_t{num_ranks}, num_segments = 2 * int64_t{virtual_ranks};
  const int64_t segment_tokens = (num_tokens + num_segments - 1) / num_segments;
  const int64_t chunk_tokens = segment_tokens * (num_segments / num_chunks);
  const auto chunk = [&](int64_t index) {
    return GlobalRange{std::min(index * chunk_tokens, num_tokens),
                       std::min((index + 1) * chunk_tokens, num_tokens)};
  };
  return {chunk(rank), chunk(num_chunks - 1 - rank)};
}

int64_t max_owned_tokens(int64_t num_tokens, int num_ranks) {
  int64_t most = 0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto [early, late] = owned_chunks(num_tokens, num_ranks, rank);
    most = std::max(most, early.size() + late.size());
  }
  return most;
}

int visiting_rank(int num_ranks, int rank, int step) {
  return (rank - step + num_ranks) % num_ranks;
}

}  // namespace pecia::parallel
