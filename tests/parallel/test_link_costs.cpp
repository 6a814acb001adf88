// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "lib/ranks/parallel/link_costs.hpp"

namespace pecia::parallel {
namespace {

GroupShape servers_of(int servers, int ranks_of_each) {
  return {1, servers, servers * ranks_of_each};
}

TEST(LeastBlockByServers, IsThatOfTheWorkedExamples) {
  const LinkCosts fast{1 / 50e9, 1 / 450e9, 10e-6}, shared{8 / 50e9, 1 / 300e9, 10e-6};
  EXPECT_EQ(least_block_by_servers(fast, servers_of(2, 8)), no_block);
  // 0.3 − (0.16 + 14 / 300) ns for each byte.
  EXPECT_EQ(least_block_by_servers(shared, servers_of(2, 8)), 107143);
}

TEST(LeastBlockByServers, IsNoneWhereNothingIsToBeSaved) {
  const LinkCosts slow{1e-9, 1e-12, 1e-6};
  EXPECT_NE(least_block_by_servers(slow, servers_of(2, 4)), no_block);
  EXPECT_EQ(least_block_by_servers({}, servers_of(2, 4)), no_block);
  EXPECT_EQ(least_block_by_servers(slow, servers_of(1, 4)), no_block);
  EXPECT_EQ(least_block_by_servers(slow, servers_of(4, 1)), no_block);
  EXPECT_EQ(least_block_by_servers({1e-9, 1e-9, 0}, servers_of(2, 4)), no_block)
      << "links as fast between";
  EXPECT_EQ(least_block_by_servers({1e-9, 1e-12, 0}, servers_of(2, 4)), 1)
      << "an exchange that costs nothing";
}

/// Of b · (1 − 1/L) bytes less between servers, against everything once more inside.
TEST(LeastBlockByServers, GrowsWithServersAsTheInsideDoes) {
  const LinkCosts costs{1e-9, 1e-11, 1e-6};
  int64_t before = 0;
  for (const int servers : {2, 3, 4, 8}) {
    const int64_t least = least_block_by_servers(costs, servers_of(servers, 8));
    EXPECT_GT(least, before) << servers;
    before = least;
  }
  EXPECT_EQ(least_block_by_servers(costs, servers_of(16, 8)), no_block);
}

TEST(ShapeOfAGroup, CountsEqualRacksAndServersAlone) {
  const auto shape = [](const std::vector<int>& servers, const std::vector<int>& racks) {
    const GroupShape of = shape_of(servers, racks);
    return std::array{of.racks, of.servers, of.ranks};
  };
  EXPECT_EQ(shape({4, 4, 1, 1, 0, 0, 9, 9}, {3, 3, 3, 3, 0, 0, 0, 0}), (std::array{2, 4, 8}));
  EXPECT_EQ(shape({0, 1, 2, 3}, {0, 0, 1, 1}), (std::array{2, 4, 4}));
  EXPECT_EQ(shape({0, 0, 1, 1}, {0, 0, 0, 0}), (std::array{1, 2, 4}));
  EXPECT_EQ(shape({0, 0, 1, 1, 2, 2}, {0, 0, 0, 0, 1, 1}), (std::array{1, 3, 6}));
  EXPECT_EQ(shape({0, 0, 1, 2}, {0, 0, 1, 1}), (std::array{1, 1, 4})) << "unequal servers";
  EXPECT_EQ(shape({0, 1, 2, 0, 1, 2, 3, 3}, {0, 0, 1, 0, 0, 1, 1, 1}), (std::array{2, 4, 8}));
  EXPECT_EQ(shape({0, 1, 0, 1, 2}, {}), (std::array{1, 1, 5}));
  EXPECT_EQ(shape({}, {}), (std::array{1, 1, 0}));
  EXPECT_FALSE((GroupShape{2, 2, 4}.has_racks()));
  EXPECT_TRUE((GroupShape{2, 4, 4}.has_racks()));
}

/// 1 · 3 blocks go between servers of a rack, at 1 ns for each byte less.
TEST(LeastBlockByRacks, IsWhatTheSavedTimeOfFasterLinksPays) {
  const LinkCosts costs{1e-9, 1e-11, 3e-6, 2e-9};
  EXPECT_EQ(least_block_by_racks(costs, {2, 8, 64}), 1000);
  EXPECT_EQ(least_block_by_racks(costs, {4, 16, 16}), 334);
  EXPECT_EQ(least_block_by_racks(costs, {2, 2, 16}), no_block) << "a server in each rack";
  EXPECT_EQ(least_block_by_racks(costs, {1, 8, 64}), no_block);
  EXPECT_EQ(least_block_by_racks({1e-9, 1e-11, 3e-6, 0}, {2, 8, 64}), no_block) << "unknown";
  EXPECT_EQ(least_block_by_racks({1e-9, 1e-11, 3e-6, 1e-9}, {2, 8, 64}), no_block);
}

/// The ring takes (4 − 1/2) · 10 ns; by servers 2 · 10 + 1 · 1, by racks 10 + 2 · 1, both + 4 · 0.01.
TEST(LeastBlockByServers, IsThatByRacksWhereThisPaysSooner) {
  const LinkCosts costs{1e-9, 1e-11, 1e-6, 1e-8};
  EXPECT_EQ(least_block_by_servers(costs, {2, 4, 8}), 72);  // 1000 / 13.96, not 2000 / 22.96
  EXPECT_EQ(least_block_by_servers(costs, {1, 4, 8}), 2174) << "3.5 and 3.04 ns in one rack";
  const LinkCosts slow_inside{1e-10, 5e-10, 1e-6, 1e-9};  // 15.5, by servers 16.1, by racks 15.2
  EXPECT_EQ(least_block_by_servers(slow_inside, {2, 4, 32}), 6667);
}

/// Four ranks: a ring has 12 µs of hops, one shot takes 3 µs and sends 3 · (1 − 2/4) times as much more.
TEST(MostOneShotBytes, AreWhatTheWaitsOfARingPay) {
  const LinkCosts slow{0, 1e-10, 0, 0};
  EXPECT_EQ(most_one_shot_bytes(slow, 4), 60000);
  EXPECT_EQ(most_one_shot_bytes(slow, 8), 47619) << "25 µs by 5.25 · 10⁻¹⁰ s";
  EXPECT_EQ(most_one_shot_bytes(slow, 2), 512 << 10) << "two ranks send as much either way";
  EXPECT_EQ(most_one_shot_bytes({}, 4), 512 << 10) << "an H100's links";
  EXPECT_EQ(most_one_shot_bytes({}, 8), 256 << 10);
  EXPECT_EQ(most_one_shot_bytes(slow, 1), 0);
}

}  // namespace
}  // namespace pecia::parallel
