// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/simulation/network.hpp"

namespace pecia::simulation {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

/// Two ranks a server, two servers a rack; 10, 2 and 1 GB/s, 1, 10 and 100 µs.
cluster_files::Cluster cluster(bool shared) {
  cluster_files::Cluster made;
  made.ranks_per_server = 2, made.servers_per_rack = 2;
  made.links = {cluster_files::Link{10, 1, shared}, cluster_files::Link{2, 10, shared},
                cluster_files::Link{1, 100, shared}};
  return made;
}

struct Message {
  double at;
  int from, to;
  double bytes, share = 1;
};

/// When each message has arrived.
std::vector<double> arrivals(const cluster_files::Cluster& cluster,
                             const std::vector<Message>& messages) {
  Network network(cluster);
  std::vector<double> found(messages.size());
  const auto until = [&](double end) {
    while (network.next_change() <= end) {
      const double now = network.next_change();
      if (now == Network::never) return;
      for (const int64_t message : network.advance(now)) found.at(message) = now;
    }
  };
  for (const Message& message : messages) {
    until(message.at);
    network.send(message.at, message.from, message.to, message.bytes, message.share);
  }
  until(Network::never);
  return found;
}

TEST(FairRates, AreThoseOfTheNarrowestPortFirst) {
  // Three flows over port 0 of 3; one of them also over port 1 of 0.5, which leaves the others 1.25.
  EXPECT_THAT(fair_rates({{0}, {0}, {0, 1}}, {3, 0.5}), ElementsAre(1.25, 1.25, 0.5));
  // Port 0 of 4 has two flows, port 1 of 3 one of these and another one.
  EXPECT_THAT(fair_rates({{0}, {0, 1}, {1}}, {4, 3}), ElementsAre(2.5, 1.5, 1.5));
  EXPECT_THAT(fair_rates({}, {1}), ElementsAre());
}

TEST(Network, TakesLatencyAndThenTheRateOfTheLevel) {
  const auto found =
      arrivals(cluster(false), {{0, 0, 1, 1e9}, {0, 2, 4, 1e9}, {0, 3, 6, 1e9, 0.5}});
  EXPECT_THAT(found, ElementsAre(DoubleNear(0.1 + 1e-6, 1e-12), DoubleNear(1 + 100e-6, 1e-12),
                                 DoubleNear(2 + 100e-6, 1e-12)));
  EXPECT_THAT(arrivals(cluster(false), {{1, 0, 2, 1e9}}), ElementsAre(DoubleNear(1.50001, 1e-12)));
}

TEST(Network, SharesAPortFromWhenAnotherMessageComes) {
  // 2 GB/s from rank 0. The second message comes when half of the first one is left.
  const auto found = arrivals(cluster(false), {{0, 0, 2, 2e9}, {0.5, 0, 3, 2e9}});
  EXPECT_NEAR(found[0], 10e-6 + 0.5 + 1.0, 1e-9);
  EXPECT_NEAR(found[1], 10e-6 + 0.5 + 1.0 + 0.5, 1e-9);
}

TEST(Network, GivesRanksOfAServerOneLinkWhereItIsShared) {
  const std::vector<Message> both{{0, 0, 2, 2e9}, {0, 1, 3, 2e9}};
  EXPECT_THAT(arrivals(cluster(false), both),
              ElementsAre(DoubleNear(1.00001, 1e-9), DoubleNear(1.00001, 1e-9)));
  EXPECT_THAT(arrivals(cluster(true), both),
              ElementsAre(DoubleNear(2.00001, 1e-9), DoubleNear(2.00001, 1e-9)));
  // Two adapters: each message has its own, with half of the rate, also where it is alone.
  cluster_files::Cluster with_adapters = cluster(true);
  with_adapters.links[1].adapters = 2;
  EXPECT_THAT(arrivals(with_adapters, both),
              ElementsAre(DoubleNear(2.00001, 1e-9), DoubleNear(2.00001, 1e-9)));
  EXPECT_NEAR(arrivals(cluster(true), {both[0]})[0], 1.00001, 1e-9);
  EXPECT_NEAR(arrivals(with_adapters, {both[0]})[0], 2.00001, 1e-9);
  // Within a server, a shared link is one bus for both directions.
  const std::vector<Message> exchange{{0, 0, 1, 1e9}, {0, 1, 0, 1e9}};
  EXPECT_NEAR(arrivals(cluster(false), exchange)[0], 0.1, 1e-5);
  EXPECT_NEAR(arrivals(cluster(true), exchange)[0], 0.2, 1e-5);
}

TEST(Network, TakesMessagesBetweenRacksThroughTheServersLinksToo) {
  // Rank 0 sends to its rack and to another one. The latter gets no more than 1 of the port's 2 GB/s.
  const auto found = arrivals(cluster(false), {{0, 0, 2, 1e9}, {0, 0, 4, 1e9}});
  EXPECT_NEAR(found[0], 1.0, 1e-3);
  EXPECT_NEAR(found[1], 1.0, 1e-3);
  // Shared: four ranks of a rack send to another rack by one link.
  const auto four =
      arrivals(cluster(true), {{0, 0, 4, 1e9}, {0, 1, 5, 1e9}, {0, 2, 6, 1e9}, {0, 3, 7, 1e9}});
  for (const double at : four) EXPECT_NEAR(at, 4.0, 1e-3);
}

TEST(Network, MovesAllBytesAtNoMoreThanThePortsHave) {
  // 24 messages from one rank, at odd times: the port is busy without a pause until the last ends.
  std::vector<Message> messages;
  double bytes = 0;
  for (int i = 0; i < 24; ++i) {
    messages.push_back({0.01 * i, 0, 2 + i % 2, 1e8 * (1 + i % 5)});
    bytes += messages.back().bytes;
  }
  const auto found = arrivals(cluster(false), messages);
  EXPECT_NEAR(*std::max_element(found.begin(), found.end()), 10e-6 + bytes / 2e9, 1e-9);
}

}  // namespace
}  // namespace pecia::simulation
