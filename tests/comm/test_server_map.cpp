// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/group_tree.hpp"
#include "lib/ranks/comm/server_map.hpp"

namespace pecia::comm {
namespace {

TEST(ServerMap, IsTheWorkedExample) {
  const std::vector<int> labels{7, 9, 9, 9, 4};
  const ServerMap map(labels);
  EXPECT_EQ(map.num_servers(), 3);
  std::vector<int> servers, delegates;
  for (int rank = 0; rank < map.num_ranks(); ++rank) {
    servers.push_back(map.server(rank));
    delegates.push_back(map.delegate(1, rank));
  }
  EXPECT_EQ(servers, (std::vector{0, 1, 1, 1, 2}));
  EXPECT_EQ(delegates, (std::vector{1, 1, 2, 3, 1}));
  EXPECT_EQ(map.ranks(1), (std::vector{1, 2, 3}));
}

TEST(GroupTree, IsTheWorkedExample) {
  const GroupTree tree({{0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 1}});
  EXPECT_EQ(tree.top(), 3);
  std::vector<int> from, exchanges, levels;
  for (int rank = 0; rank < 8; ++rank) {
    const GroupTree::Way way = tree.way(1, rank);
    from.push_back(way.from), exchanges.push_back(way.exchange), levels.push_back(way.level);
  }
  EXPECT_EQ(from, (std::vector{1, -1, 3, 1, 5, 1, 7, 5}));
  EXPECT_EQ(exchanges, (std::vector{0, -1, 1, 0, 1, 0, 2, 1}));
  EXPECT_EQ(levels, (std::vector{0, 3, 0, 1, 0, 2, 0, 1}));
  EXPECT_EQ(tree.delegates(3, 1), (std::vector{1, 5}));
  EXPECT_EQ(tree.delegates(2, 5), (std::vector{5, 7}));
  EXPECT_EQ(tree.delegates(1, 7), (std::vector{6, 7}));
}

TEST(GroupTree, LeavesOutWhatJoinsNothingOrAll) {
  EXPECT_EQ(GroupTree({{5, 5, 5}}).top(), 1);
  EXPECT_EQ(GroupTree({{5, 4, 3}}).top(), 1);
  EXPECT_EQ(GroupTree({{5, 5, 3}}).top(), 2);
  EXPECT_EQ(GroupTree({{5, 5, 3}, {0, 0, 0}}).top(), 2);
  EXPECT_EQ(GroupTree({{5, 5, 3}, {0, 0, 1}}).top(), 2);
  EXPECT_EQ(GroupTree({{0, 1, 2, 3}, {0, 0, 1, 1}}).top(), 2);
  EXPECT_THROW(GroupTree({{5, 5, 3}, {0, 1}}), InvalidArgument);
  EXPECT_THROW(GroupTree({{5, 5, 3}, {0, 1, 1}}), InvalidArgument);
}

TEST(ServerMap, MakesEveryRankItsOwnDelegateAtHome) {
  const std::vector<int> labels{0, 1, 0, 2, 2, 1, 0, 2};
  const ServerMap map(labels);
  for (int rank = 0; rank < map.num_ranks(); ++rank)
    EXPECT_EQ(map.delegate(map.server(rank), rank), rank);
}

TEST(ServerMap, SharesTheWorkForEqualServersEvenly) {
  const std::vector<int> labels{0, 0, 0, 1, 1, 1};
  const ServerMap map(labels);
  EXPECT_EQ(map.delegate(1, 0), 3);
  EXPECT_EQ(map.delegate(1, 1), 4);
  EXPECT_EQ(map.delegate(1, 2), 5);
  EXPECT_EQ(map.delegate(0, 4), 1);
}

TEST(ServerMap, KnowsWhichServersSumAsOne) {
  using Labels = std::vector<int>;
  for (const Labels& labels : {Labels{}, Labels{5}, Labels{5, 5, 5}, Labels{0, 1, 2, 3, 4},
                               Labels{0, 0, 1, 1}, Labels{7, 7, 3, 3, 9}, Labels{0, 0, 0, 0, 1, 1}})
    EXPECT_TRUE(sums_as_flat(labels)) << labels.size();
  for (const Labels& labels : {Labels{0, 1, 0, 1}, Labels{0, 1, 1}, Labels{0, 0, 0, 1, 1, 1},
                               Labels{0, 0, 1, 2}, Labels{0, 0, 1, 1, 0, 0}})
    EXPECT_FALSE(sums_as_flat(labels)) << labels.size();
}

}  // namespace
}  // namespace pecia::comm
