// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/settle/batch_sample.hpp"

namespace pecia::settle {
namespace {

/// Requests of 1, 2, 3 … tokens.
std::vector<schedule::SimulatedRequest> requests(int64_t count, bool arrive) {
  std::vector<schedule::SimulatedRequest> all(count);
  for (int64_t i = 0; i < count; ++i) {
    all[i].turns = {{i + 1, 1}};
    if (arrive) all[i].arrival_s = static_cast<double>(i);
  }
  return all;
}

std::vector<int64_t> lengths(const std::vector<schedule::SimulatedRequest>& of) {
  std::vector<int64_t> found;
  for (const auto& request : of) found.push_back(request.turns.front().prompt_tokens);
  return found;
}

TEST(PartOfAReplica, IsAllOfASmallBatch) {
  EXPECT_EQ(lengths(part_of_a_replica(requests(4, false), 1, 4)),
            (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_TRUE(part_of_a_replica({}, 3, 4).empty());
}

TEST(PartOfAReplica, IsEveryNthOfABatch) {
  EXPECT_EQ(lengths(part_of_a_replica(requests(12, false), 1, 4)),
            (std::vector<int64_t>{1, 4, 7, 10}));
  EXPECT_EQ(lengths(part_of_a_replica(requests(12, false), 3, 4)),
            (std::vector<int64_t>{1, 4, 7, 10}));
  EXPECT_EQ(lengths(part_of_a_replica(requests(12, false), 3, 2)), (std::vector<int64_t>{1, 7}));
}

TEST(PartOfAReplica, IsTheBeginningOfATrace) {
  EXPECT_EQ(lengths(part_of_a_replica(requests(12, true), 2, 4)),
            (std::vector<int64_t>{1, 3, 5, 7}));
}

TEST(RequestsOfTurns, CountsTurns) {
  auto all = requests(10, false);
  EXPECT_EQ(requests_of_turns(all, 5), 5u);
  EXPECT_EQ(requests_of_turns(all, 10), 10u);
  EXPECT_EQ(requests_of_turns(all, 1000), 10u);
  for (auto& request : all) request.turns.assign(1000, {1, 1});
  EXPECT_EQ(requests_of_turns(all, 2500), 3u);
  EXPECT_EQ(requests_of_turns(all, 500), 1u);
  EXPECT_EQ(requests_of_turns({}, 5), 1u);
}

}  // namespace
}  // namespace pecia::settle
