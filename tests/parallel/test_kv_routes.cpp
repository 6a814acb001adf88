// SPDX-License-Identifier: Apache-2.0
/// Keys by neighbourhoods: each rank gets every row of its head once, and each head crosses to a
/// server once.

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/kv_routes.hpp"

namespace pecia::parallel {
namespace {

std::vector<HeadRange> heads_of(int ranks, int64_t kv_heads) {
  std::vector<HeadRange> wanted;
  for (int rank = 0; rank < ranks; ++rank)
    wanted.push_back(head_shard(64, kv_heads, ranks, rank).kv);
  return wanted;
}

std::vector<int> servers_of(int ranks, int per_server) {
  std::vector<int> servers;
  for (int rank = 0; rank < ranks; ++rank) servers.push_back(rank / per_server);
  return servers;
}

struct Message {
  int source, head, from, to;
};

/// What travels: first from the sources, then from relays, which must have got it before.
std::vector<Message> messages_of(const KvRoutes& routes, const std::vector<HeadRange>& wanted) {
  const auto size = static_cast<int>(wanted.size());
  std::vector<Message> messages;
  for (int source = 0; source < size; ++source)
    for (int to = 0; to < size; ++to)
      if (to != source) {
        const int from = routes.last_hop(source, to);
        for (int64_t head = wanted[to].begin; head < wanted[to].end; ++head)
          messages.push_back({source, static_cast<int>(head), from, to});
        if (from == source) continue;
        EXPECT_EQ(routes.last_hop(source, from), source) << "a relay's relay";
        EXPECT_EQ(wanted[from], wanted[to]) << "a relay without the head";
      }
  return messages;
}

TEST(KvRoutes, AreTheWorkedExample) {
  const KvRoutes routes = KvRoutes::by_servers(heads_of(8, 2), servers_of(8, 4));
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) EXPECT_EQ(routes.last_hop(from, to), from);
    for (int to = 4; to < 8; ++to)
      EXPECT_EQ(routes.last_hop(from, to), to == from + 4 ? from : from + 4);
  }
  EXPECT_EQ(routes.relayed_by(4), std::vector<int>{0});
  EXPECT_EQ(routes.relayed_by(1), std::vector<int>{5});
}

/// Servers whose ranks follow each other, as in a group of SP, or take turns, as in a block of
/// SP × TP; of unequal sizes, too.
TEST(KvRoutes, GiveEveryRankEachHeadOnceAndEachServerOnce) {
  for (const int ranks : {4, 8, 16, 32})
    for (const int64_t kv_heads : {1, 2, 4, 8, 64}) {
      if (!can_shard_heads(64, kv_heads, ranks)) continue;
      std::vector<std::vector<int>> layouts{servers_of(ranks, ranks), servers_of(ranks, 2),
                                            servers_of(ranks, ranks / 2), servers_of(ranks, 3)};
      for (int rank = 0; rank < ranks; ++rank) {
        if (rank == 0) layouts.emplace_back();
        layouts.back().push_back(rank % 2);
      }
      for (const std::vector<int>& servers : layouts) {
        const std::vector<HeadRange> wanted = heads_of(ranks, kv_heads);
        const KvRoutes routes = KvRoutes::by_servers(wanted, servers);
        std::map<std::array<int, 3>, int> arrived, crossed;
        for (const auto& [source, head, from, to] : messages_of(routes, wanted)) {
          ++arrived[{source, head, to}];
          if (servers[from] != servers[to]) ++crossed[{source, head, servers[to]}];
          if (from != source) {
            EXPECT_EQ(servers[from], servers[to]) << "a relay far away";
          }
        }
        for (int source = 0; source < ranks; ++source)
          for (int to = 0; to < ranks; ++to)
            for (int64_t head = wanted[to].begin; head < wanted[to].end; ++head) {
              if (source == to) continue;
              const int number = static_cast<int>(head);
              EXPECT_EQ((arrived[{source, number, to}]), 1);
              EXPECT_EQ((crossed[{source, number, servers[to]}]),
                        servers[source] == servers[to] ? 0 : 1);
            }
      }
    }
}

TEST(KvRoutes, ShareTheWorkOfRelaysEvenly) {
  const KvRoutes routes = KvRoutes::by_servers(heads_of(32, 4), servers_of(32, 8));
  for (int rank = 0; rank < 32; ++rank)  // 4 servers of 8 ranks, neighbourhoods of 8
    EXPECT_EQ(routes.relayed_by(rank).size(), 3u) << rank;
  const KvRoutes wider = KvRoutes::by_servers(heads_of(32, 16), servers_of(32, 8));
  for (int rank = 0; rank < 32; ++rank)  // neighbourhoods of 2
    EXPECT_EQ(wider.relayed_by(rank).size(), 12u) << rank;
}

TEST(KvRoutes, AreDirectWhereNothingIsToBeSaved) {
  EXPECT_TRUE(KvRoutes().are_direct());
  EXPECT_EQ(KvRoutes().last_hop(3, 1), 3);
  const auto direct = [](int ranks, int64_t kv_heads, int per_server) {
    return KvRoutes::by_servers(heads_of(ranks, kv_heads), servers_of(ranks, per_server))
        .are_direct();
  };
  EXPECT_TRUE(direct(8, 2, 8)) << "one server";
  EXPECT_TRUE(direct(8, 8, 4)) << "each head on one rank";
  EXPECT_TRUE(direct(8, 2, 1)) << "every rank on a server of its own";
  EXPECT_FALSE(direct(8, 2, 2));
  EXPECT_THROW(KvRoutes::by_servers(heads_of(8, 2), servers_of(4, 2)), InvalidArgument);
}

/// The worked example: 3 of 4 copies of 10 rows stay off the slow links, and a relay passes 3 on.
TEST(KvRoutes, SaveTimeWhereLinksBetweenServersAreSlowerAndThereIsEnoughToSend) {
  const KvRoutes routes = KvRoutes::by_servers(heads_of(8, 2), servers_of(8, 4));
  std::vector<RowRange> rows;
  for (int rank = 0; rank < 8; ++rank) rows.push_back(row_part({0, 80}, 8, rank));
  const auto saved = [&](const LinkCosts& costs) { return saved_s(routes, rows, 100, costs); };
  EXPECT_DOUBLE_EQ(saved({4, 1, 0}), 3 * 10 * 100 * (4 - 1));
  EXPECT_DOUBLE_EQ(saved({4, 1, 10000}), 9000 - 10000);
  EXPECT_DOUBLE_EQ(saved({1, 1, 5}), -5);
  EXPECT_DOUBLE_EQ(saved({}), 0);
  EXPECT_DOUBLE_EQ(saved_s(KvRoutes(), rows, 100, {4, 1, 5}), 0);
}

}  // namespace
}  // namespace pecia::parallel
