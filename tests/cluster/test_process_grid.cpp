// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "lib/base/core/error.hpp"
#include "lib/ranks/cluster/process_grid.hpp"

namespace pecia::cluster {
namespace {

/// `per_server` ranks on each of `servers` servers of each of `racks` racks, in sorted order.
std::vector<comm::RackServerGpu> cluster(int racks, int servers, int per_server) {
  std::vector<comm::RackServerGpu> places;
  for (int rack = 0; rack < racks; ++rack)
    for (int server = 0; server < servers; ++server)
      for (int device = 0; device < per_server; ++device)
        places.push_back({fmt::format("rack{}", rack), fmt::format("n{}{}", rack, server), device});
  return places;
}

TEST(ProcessGrid, IsTheWorkedExample) {
  const std::vector<comm::RackServerGpu> places{{"a", "n1", 0}, {"a", "n1", 1}, {"a", "n2", 0},
                                                {"a", "n2", 1}, {"b", "n3", 0}, {"b", "n3", 1},
                                                {"b", "n4", 0}, {"b", "n4", 1}};
  const ProcessGrid grid({2, 2, 1, 2}, places);
  const std::vector<GridCoordinates> expected{{0, 0, 0, 0}, {0, 0, 0, 1}, {0, 1, 0, 0},
                                              {0, 1, 0, 1}, {1, 0, 0, 0}, {1, 0, 0, 1},
                                              {1, 1, 0, 0}, {1, 1, 0, 1}};
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(grid.coordinates(rank), expected[rank]) << rank;
  EXPECT_EQ(grid.group(Axis::tp, 3), (std::vector{2, 3}));
  EXPECT_EQ(grid.group(Axis::cp, 3), (std::vector{1, 3}));
  EXPECT_EQ(grid.group(Axis::dp, 3), (std::vector{3, 7}));
  EXPECT_EQ(grid.group(Axis::sp, 3), (std::vector{3}));
  EXPECT_EQ(grid.replica(1), (std::vector{4, 5, 6, 7}));
}

class EveryGrid : public testing::TestWithParam<GridShape> {};

TEST_P(EveryGrid, IsABijection) {
  const auto places = cluster(2, 3, 4);
  const ProcessGrid grid(GetParam(), places);
  std::set<std::tuple<int, int, int, int>> seen;
  for (int rank = 0; rank < 24; ++rank) {
    const GridCoordinates at = grid.coordinates(rank);
    EXPECT_EQ(grid.rank_at(at), rank);
    seen.insert({at.dp, at.cp, at.sp, at.tp});
  }
  EXPECT_EQ(seen.size(), 24u);
}

TEST_P(EveryGrid, DoesNotDependOnTheLaunchersOrder) {
  const auto places = cluster(2, 3, 4);
  const ProcessGrid grid(GetParam(), places);
  std::mt19937 random(7);
  for (int attempt = 0; attempt < 20; ++attempt) {
    auto shuffled = places;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    const ProcessGrid other(GetParam(), shuffled);
    for (int rank = 0; rank < 24; ++rank)
      EXPECT_EQ(shuffled[other.rank_at(grid.coordinates(rank))], places[rank]);
  }
}

TEST_P(EveryGrid, KeepsTensorParallelRanksOnOneServer) {
  const auto places = cluster(2, 3, 4);  // every tp below divides the 4 ranks of a server
  const ProcessGrid grid(GetParam(), places);
  for (int rank = 0; rank < 24; ++rank)
    for (const int peer : grid.group(Axis::tp, rank))
      EXPECT_EQ(places[peer].server, places[rank].server);
}

TEST_P(EveryGrid, HasGroupsThatAgreeAmongTheirMembers) {
  const auto places = cluster(2, 3, 4);
  const ProcessGrid grid(GetParam(), places);
  for (const Axis axis : {Axis::dp, Axis::cp, Axis::sp, Axis::tp})
    for (int rank = 0; rank < 24; ++rank) {
      const auto group = grid.group(axis, rank);
      EXPECT_EQ(std::count(group.begin(), group.end(), rank), 1);
      for (const int peer : group) EXPECT_EQ(grid.group(axis, peer), group);
    }
}

INSTANTIATE_TEST_SUITE_P(Of24Ranks, EveryGrid,
                         testing::Values(GridShape{1, 24, 1, 1}, GridShape{24, 1, 1, 1},
                                         GridShape{2, 3, 2, 2}, GridShape{2, 3, 1, 4},
                                         GridShape{3, 2, 4, 1}, GridShape{1, 1, 6, 4}));

TEST(ProcessGrid, RefusesAShapeThatLeavesOrLacksRanks) {
  const auto places = cluster(1, 3, 2);
  try {
    ProcessGrid({2, 2, 1, 1}, places);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(
        error.what(),
        "DP 2 × CP 2 × SP 1 × TP 1 is a grid of 4 ranks, but 6 run; start 4 or set parallel.cp: 3");
  }
  try {
    ProcessGrid({4, 1, 1, 1}, places);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(
        error.what(),
        "DP 4 × CP 1 × SP 1 × TP 1 is a grid of 4 ranks, but 6 run; start a multiple of 4 with "
        "parallel.cp: auto");
  }
  EXPECT_THROW(ProcessGrid({0, 6, 1, 1}, places), InvalidArgument);
  EXPECT_THROW(ProcessGrid({2, 1, 1, 1}, std::vector(2, places[0])), InvalidArgument);
}

}  // namespace
}  // namespace pecia::cluster
