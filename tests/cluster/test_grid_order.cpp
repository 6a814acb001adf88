// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "lib/base/core/error.hpp"
#include "lib/ranks/cluster/grid_order.hpp"
#include "lib/ranks/cluster/process_grid.hpp"

namespace pecia::cluster {
namespace {

/// Racks "a", "b", … with so many servers, each of so many ranks; in sorted order.
std::vector<comm::RackServerGpu> racks_of(const std::vector<int>& servers, int per_server) {
  std::vector<comm::RackServerGpu> places;
  for (size_t rack = 0; rack < servers.size(); ++rack)
    for (int server = 0; server < servers[rack]; ++server)
      for (int device = 0; device < per_server; ++device)
        places.push_back(
            {std::string(1, static_cast<char>('a' + rack)), fmt::format("n{:02}", server), device});
  return places;
}

std::string racks_in_order(const std::vector<comm::RackServerGpu>& places, int replica_ranks) {
  std::string text;
  int index = 0;
  for (const int rank : grid_order(places, replica_ranks)) {
    if (index++ % replica_ranks == 0 && !text.empty()) text += '|';
    text += places[rank].rack;
  }
  return text;
}

TEST(GridOrder, IsTheWorkedExample) {
  EXPECT_EQ(racks_in_order(racks_of({1, 4, 3}, 1), 4), "accc|bbbb");
}

TEST(GridOrder, IsByPlaceWhereNothingIsGained) {
  EXPECT_EQ(racks_in_order(racks_of({2, 2}, 1), 4), "aabb");
  EXPECT_EQ(racks_in_order(racks_of({2, 2}, 1), 2), "aa|bb");
  EXPECT_EQ(racks_in_order(racks_of({3, 5}, 1), 4), "aaab|bbbb");
  const std::vector<comm::RackServerGpu> places{
      {"b", "n", 1}, {"", "n", 0}, {"b", "n", 0}, {"b", "m", 7}};
  EXPECT_EQ(grid_order(places, 4), (std::vector{1, 3, 2, 0}));
}

TEST(GridOrder, RefusesDoubledPlacesAndPartsOfReplicas) {
  const std::vector<comm::RackServerGpu> twins{{"a", "n", 0}, {"b", "n", 0}, {"a", "n", 0}};
  EXPECT_THROW(grid_order(twins, 3), InvalidArgument);
  EXPECT_THROW(grid_order(std::span(twins).first(2), 0), InvalidArgument);
  EXPECT_THROW(grid_order(twins, 2), InvalidArgument);
  EXPECT_TRUE(grid_order({}, 2).empty());
}

/// How often neighbours of closed rings, one through each replica, are in different racks.
int crossings(const std::vector<comm::RackServerGpu>& places, const std::vector<int>& order,
              int size) {
  int count = 0;
  for (size_t begin = 0; begin < order.size(); begin += size)
    for (int at = 0; at < size; ++at)
      count += places[order[begin + at]].rack != places[order[begin + (at + 1) % size]].rack;
  return count;
}

/// The fewest crossings of any assignment, by trying them all: each replica takes some of each rack
/// and crosses as often as it has racks, or never with one.
class Fewest {
 public:
  explicit Fewest(int size) : size_(size) {}

  int of(std::vector<int> left) {
    std::sort(left.begin(), left.end());  // racks are alike
    if (left.back() == 0) return 0;
    const auto [found, is_new] = known_.try_emplace(left, 1 << 20);
    if (is_new) {
      int best = 1 << 20;
      take(left, 0, size_, 0, best);
      known_[left] = best;
    }
    return known_[left];
  }

 private:
  void take(std::vector<int>& left, size_t rack, int wanted, int racks, int& best) {
    if (wanted == 0) best = std::min(best, (racks > 1 ? racks : 0) + of(left));
    if (wanted == 0 || rack == left.size()) return;
    for (int some = 0; some <= std::min(wanted, left[rack]); ++some) {
      left[rack] -= some;
      take(left, rack + 1, wanted - some, racks + (some > 0), best);
      left[rack] += some;
    }
  }

  int size_;
  std::map<std::vector<int>, int> known_;
};

TEST(GridOrder, CrossesRacksAsFewTimesAsAnyAssignment) {
  std::mt19937 random(11);
  int cases = 0, better_than_sorted = 0;
  while (cases < 300) {
    const int size = 2 + static_cast<int>(random() % 5);
    std::vector<int> servers(2 + random() % 4);
    for (int& count : servers) count = 1 + static_cast<int>(random() % 6);
    const int all = std::accumulate(servers.begin(), servers.end(), 0);
    if (all % size != 0) continue;
    ++cases;
    const auto places = racks_of(servers, 1);
    const int found = crossings(places, grid_order(places, size), size);
    ASSERT_EQ(found, Fewest(size).of(servers))
        << "racks of " << testing::PrintToString(servers) << ", replicas of " << size;
    std::vector<int> sorted(all);
    std::iota(sorted.begin(), sorted.end(), 0);
    better_than_sorted += found < crossings(places, sorted, size);
  }
  EXPECT_GT(better_than_sorted, 0);
}

TEST(GridOrder, TakesManyRacks) {
  std::mt19937 random(5);
  std::vector<int> servers(60);
  for (int& count : servers) count = 1 + static_cast<int>(random() % 9);
  servers.push_back(10 - std::accumulate(servers.begin(), servers.end(), 0) % 10);
  std::vector<comm::RackServerGpu> places;
  for (size_t rack = 0; rack < servers.size(); ++rack)
    for (int server = 0; server < servers[rack]; ++server)
      places.push_back({fmt::format("rack{}", rack), fmt::format("n{}", server), 0});
  auto order = grid_order(places, 10);
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], static_cast<int>(i));
}

/// Uneven racks of servers with several GPUs, with the grids that fit them.
struct Cluster {
  std::vector<int> servers;
  int gpus;
  GridShape shape;
};

class EveryCluster : public testing::TestWithParam<Cluster> {
 protected:
  const std::vector<comm::RackServerGpu> places_ = racks_of(GetParam().servers, GetParam().gpus);
};

TEST_P(EveryCluster, HasOneGridHoweverRanksAreAssigned) {
  const ProcessGrid grid(GetParam().shape, places_);
  std::mt19937 random(3);
  auto shuffled = places_;
  for (int attempt = 0; attempt < 50; ++attempt) {
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    const ProcessGrid other(GetParam().shape, shuffled);
    for (size_t rank = 0; rank < places_.size(); ++rank)
      ASSERT_EQ(shuffled[other.rank_at(grid.coordinates(static_cast<int>(rank)))], places_[rank]);
  }
}

TEST_P(EveryCluster, KeepsTensorParallelRanksOnOneServer) {
  const ProcessGrid grid(GetParam().shape, places_);
  ASSERT_EQ(GetParam().gpus % GetParam().shape.tp, 0);
  for (int rank = 0; rank < GetParam().shape.ranks(); ++rank)
    for (const int peer : grid.group(Axis::tp, rank))
      EXPECT_EQ(comm::link_level(places_[peer], places_[rank]), comm::LinkLevel::server)
          << comm::to_string(places_[rank]) << " with " << comm::to_string(places_[peer]);
}

TEST_P(EveryCluster, EntersEachRackOfARingOnce) {
  const ProcessGrid grid(GetParam().shape, places_);
  for (int rank = 0; rank < GetParam().shape.ranks(); ++rank) {
    const std::vector<int> ring = grid.group(Axis::cp, rank);
    std::vector<std::string> racks;
    for (const int member : ring)
      if (racks.empty() || racks.back() != places_[member].rack)
        racks.push_back(places_[member].rack);
    std::sort(racks.begin(), racks.end());
    EXPECT_EQ(std::adjacent_find(racks.begin(), racks.end()), racks.end());
  }
}

INSTANTIATE_TEST_SUITE_P(
    OfUnevenRacks, EveryCluster,
    testing::Values(Cluster{{1, 2}, 4, {1, 12, 1, 1}}, Cluster{{1, 2}, 4, {1, 3, 1, 4}},
                    Cluster{{1, 4, 3}, 2, {2, 4, 1, 2}}, Cluster{{1, 4, 3}, 4, {4, 2, 1, 4}},
                    Cluster{{5, 2, 1}, 8, {2, 4, 2, 4}}, Cluster{{3, 3}, 1, {2, 3, 1, 1}},
                    Cluster{{2, 5, 2, 3}, 2, {3, 4, 2, 1}}, Cluster{{7}, 6, {7, 1, 3, 2}}));

}  // namespace
}  // namespace pecia::cluster
