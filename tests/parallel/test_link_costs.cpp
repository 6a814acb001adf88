// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/ranks/parallel/link_costs.hpp"

namespace pecia::parallel {
namespace {

TEST(LeastBlockByServers, IsThatOfTheWorkedExamples) {
  const LinkCosts fast{1 / 50e9, 1 / 450e9, 10e-6}, shared{8 / 50e9, 1 / 300e9, 10e-6};
  EXPECT_EQ(least_block_by_servers(fast, 2, 8), no_block);
  // 0.3 − (0.16 + 14 / 300) ns for each byte.
  EXPECT_EQ(least_block_by_servers(shared, 2, 8), 107143);
}

TEST(LeastBlockByServers, IsNoneWhereNothingIsToBeSaved) {
  const LinkCosts slow{1e-9, 1e-12, 1e-6};
  EXPECT_NE(least_block_by_servers(slow, 2, 4), no_block);
  EXPECT_EQ(least_block_by_servers({}, 2, 4), no_block);
  EXPECT_EQ(least_block_by_servers(slow, 1, 4), no_block);
  EXPECT_EQ(least_block_by_servers(slow, 4, 1), no_block);
  EXPECT_EQ(least_block_by_servers({1e-9, 1e-9, 0}, 2, 4), no_block) << "links as fast between";
  EXPECT_EQ(least_block_by_servers({1e-9, 1e-12, 0}, 2, 4), 1) << "an exchange that costs nothing";
}

/// Of b · (1 − 1/L) bytes less between servers, against everything once more inside.
TEST(LeastBlockByServers, GrowsWithServersAsTheInsideDoes) {
  const LinkCosts costs{1e-9, 1e-11, 1e-6};
  int64_t before = 0;
  for (const int servers : {2, 3, 4, 8}) {
    const int64_t least = least_block_by_servers(costs, servers, 8);
    EXPECT_GT(least, before) << servers;
    before = least;
  }
  EXPECT_EQ(least_block_by_servers(costs, 16, 8), no_block);
}

}  // namespace
}  // namespace pecia::parallel
