// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "lib/ranks/parallel/ring.hpp"

namespace pecia::parallel {
namespace {

TEST(OwnedChunks, AreTheTwoOfTheWorkedExample) {
  EXPECT_EQ(owned_chunks(8, 2, 0), (std::array{GlobalRange{0, 2}, GlobalRange{6, 8}}));
  EXPECT_EQ(owned_chunks(8, 2, 1), (std::array{GlobalRange{2, 4}, GlobalRange{4, 6}}));
  EXPECT_EQ(owned_chunks(5, 2, 0), (std::array{GlobalRange{0, 2}, GlobalRange{5, 5}}));
  EXPECT_EQ(owned_chunks(5, 2, 1), (std::array{GlobalRange{2, 4}, GlobalRange{4, 5}}));
}

TEST(MaxOwnedTokens, IsWhatTheFullestRankOwns) {
  EXPECT_EQ(max_owned_tokens(8, 2), 4);
  EXPECT_EQ(max_owned_tokens(5, 2), 3);
  EXPECT_EQ(max_owned_tokens(3, 3), 1);
  EXPECT_EQ(max_owned_tokens(9, 4), 3);  // chunks of two: rank 3 owns [6,8) and [8,9)
  EXPECT_EQ(max_owned_tokens(0, 4), 0);
}

class EveryRing : public testing::TestWithParam<std::tuple<int64_t, int>> {};

TEST_P(EveryRing, OwnsEveryTokenExactlyOnce) {
  const auto [num_tokens, num_ranks] = GetParam();
  std::vector<int> owners(num_tokens);
  for (int rank = 0; rank < num_ranks; ++rank)
    for (const GlobalRange& chunk : owned_chunks(num_tokens, num_ranks, rank))
      for (int64_t token = chunk.begin; token < chunk.end; ++token) ++owners[token];
  EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), num_tokens);
}

TEST_P(EveryRing, BalancesCausalWorkWithinOneChunkSquared) {
  const auto [num_tokens, num_ranks] = GetParam();
  const int64_t chunk = (num_tokens + 2 * num_ranks - 1) / (2 * num_ranks);
  if (num_tokens != chunk * 2 * num_ranks)
    return;  // short last chunks are the price of ragged lengths
  std::vector<int64_t> work;
  for (int rank = 0; rank < num_ranks; ++rank) {
    int64_t pairs = 0;
    for (const GlobalRange& range : owned_chunks(num_tokens, num_ranks, rank))
      for (int64_t token = range.begin; token < range.end; ++token) pairs += token + 1;
    work.push_back(pairs);
  }
  const auto [least, most] = std::minmax_element(work.begin(), work.end());
  EXPECT_LE(*most - *least, chunk * chunk);
}

TEST_P(EveryRing, EveryRankVisitsEveryOtherOnce) {
  const auto [num_tokens, num_ranks] = GetParam();
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<int> seen(num_ranks);
    for (int step = 0; step < num_ranks; ++step) {
      const int visitor = visiting_rank(num_ranks, rank, step);
      ++seen[visitor];
      // What a rank holds at a step is what its left neighbour held one step before.
      if (step == 0) continue;
      EXPECT_EQ(visitor, visiting_rank(num_ranks, (rank + num_ranks - 1) % num_ranks, step - 1));
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), num_ranks);
  }
}

INSTANTIATE_TEST_SUITE_P(AroundTheEdges, EveryRing,
                         testing::Combine(testing::Values(0, 1, 2, 7, 8, 9, 15, 16, 17, 40, 64, 240,
                                                          1000),
                                          testing::Values(1, 2, 3, 4, 5, 8)));

}  // namespace
}  // namespace pecia::parallel
