// SPDX-License-Identifier: Apache-2.0
/// Teams of any ranks in any order: side by side, one after the other, and ranks without one.

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/collectives.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/ranks/comm/team.hpp"

namespace pecia::comm {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<Communicator> world() {
  return make_mpi_communicator(MPI_COMM_WORLD, 60s);
}

/// Disjoint ordered lists of some of the ranks, the same on every rank.
std::vector<std::vector<int>> random_teams(int size, std::mt19937& random) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shuffle(ranks.begin(), ranks.end(), random);
  ranks.resize(random() % size + 1);  // the others have no team
  std::vector<std::vector<int>> teams;
  for (size_t begin = 0; begin < ranks.size();) {
    const size_t end = begin + random() % (ranks.size() - begin) + 1;
    teams.emplace_back(ranks.begin() + begin, ranks.begin() + end);
    begin = end;
  }
  return teams;
}

/// The rank's team among these, if it has one.
std::unique_ptr<Communicator> own_team(Communicator& parent,
                                       const std::vector<std::vector<int>>& teams, int64_t serial) {
  for (const auto& ranks : teams)
    if (std::count(ranks.begin(), ranks.end(), parent.rank()) > 0)
      return make_team(parent, ranks, serial);
  return nullptr;
}

std::vector<std::byte> bytes_of(int value, size_t count) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

TEST(Team, IsMadeWithoutAMessage) {
  const auto parent = world();
  std::vector<int> ranks(parent->size());
  std::iota(ranks.rbegin(), ranks.rend(), 0);
  const auto team = make_team(*parent, ranks, 1);
  EXPECT_EQ(team->rank(), parent->size() - 1 - parent->rank()) << "the list's order";
  EXPECT_EQ(team->size(), parent->size());
  EXPECT_EQ(parent->traffic().messages, 0);
}

/// No rank waits for another team, and every message reaches the team that it was sent in.
TEST(Team, ChangesWithEveryIteration) {
  const auto parent = world();
  std::mt19937 random(7);
  for (int iteration = 0; iteration < 200; ++iteration) {
    const auto teams = random_teams(parent->size(), random);
    const size_t bytes = random() % 5000;
    const auto team = own_team(*parent, teams, iteration);
    if (!team) continue;
    const auto value = [&](int from) { return (iteration * 31 + from * 7) % 251; };
    const int size = team->size(), right = (team->rank() + 1) % size,
              left = (team->rank() + size - 1) % size;
    const auto sent = bytes_of(value(team->rank()), bytes);
    std::vector<std::byte> received(bytes);
    const auto ring = team->start_send_receive(sent, right, received, left);
    const auto gathered = team->all_gather(bytes_of(value(team->rank()), team->rank()));
    ring->wait();
    ASSERT_EQ(received, bytes_of(value(left), bytes)) << "iteration " << iteration;
    for (int rank = 0; rank < size; ++rank)
      ASSERT_EQ(gathered[rank], bytes_of(value(rank), rank)) << "iteration " << iteration;
    auto told = team->rank() == size - 1 ? bytes_of(iteration % 251, 3000) : bytes_of(0, 1);
    team->broadcast(told, size - 1);
    ASSERT_EQ(told, bytes_of(iteration % 251, 3000)) << "iteration " << iteration;
    ASSERT_EQ(team->all_reduce_max(team->rank()), size - 1);
    ASSERT_EQ(team->all_reduce_sum(team->rank()), size * (size - 1) / 2);
    const auto at_root = team->gather(bytes_of(team->rank(), 2), 0);
    ASSERT_EQ(at_root.size(), team->rank() == 0 ? static_cast<size_t>(size) : 0);
    team->barrier();
  }
}

TEST(Team, DeliversBlocksOfAnySize) {
  const auto parent = world();
  std::vector<int> ranks(parent->size());
  std::iota(ranks.rbegin(), ranks.rend(), 0);
  const auto team = make_team(*parent, ranks, 1);
  const auto bytes = [](int from, int to) { return static_cast<size_t>(from * to % 3 * 100); };
  const auto value = [](int from, int to) { return from * 16 + to; };
  std::vector<std::vector<std::byte>> send, receive;
  Blocks blocks;
  for (int other = 0; other < team->size(); ++other) {
    send.push_back(bytes_of(value(team->rank(), other), bytes(team->rank(), other)));
    receive.emplace_back(bytes(other, team->rank()));
  }
  for (int other = 0; other < team->size(); ++other) {
    blocks.send.emplace_back(send[other]);
    blocks.receive.emplace_back(receive[other]);
  }
  team->start_all_to_all(blocks)->wait();
  for (int other = 0; other < team->size(); ++other)
    EXPECT_EQ(receive[other], bytes_of(value(other, team->rank()), bytes(other, team->rank())));
}

/// Flat, and over two servers; teams of both halves at the same time.
TEST(Team, SumsAsAGroupOfItsOwnDoes) {
  const auto parent = world();
  const int half = (parent->size() + 1) / 2;
  const bool first = parent->rank() < half;
  std::vector<int> ranks(first ? half : parent->size() - half);
  std::iota(ranks.begin(), ranks.end(), first ? 0 : half);
  const auto team = make_team(*parent, ranks, 1);
  const auto group = parent->split(first ? 0 : 1, parent->rank());
  for (const bool two_servers : {false, true}) {
    std::vector<int> servers(ranks.size());
    for (size_t i = 0; i < servers.size(); ++i)
      servers[i] = two_servers ? static_cast<int>(i % 2) : static_cast<int>(i);
    const auto of_team = team->make_collectives(servers, SumOrder::tree);
    const auto of_group = group->make_collectives(servers, SumOrder::tree);
    std::vector<float> values(1013);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = 1.0f / static_cast<float>(i + 1 + 3 * parent->rank());
    std::vector<float> same = values;
    of_team->start_all_reduce(values)->wait();
    of_group->start_all_reduce(same)->wait();
    EXPECT_EQ(values, same) << "bit by bit";
  }
}

TEST(Team, CountsWhatItSendsByLevel) {
  const auto parent = world();
  if (parent->size() < 3) GTEST_SKIP() << "three places take three ranks";
  if (parent->rank() > 2) return;
  const auto team = make_team(*parent, {2, 0, 1}, 1);
  team->set_places({{"r0", "s0", 0}, {"r0", "s0", 1}, {"r0", "s1", 0}});
  const auto sent = bytes_of(1, 100);
  std::vector<std::byte> received(100);
  const int right = (team->rank() + 1) % 3, left = (team->rank() + 2) % 3;
  team->start_send_receive(sent, right, received, left)->wait();
  const Traffic traffic = team->traffic();
  EXPECT_EQ(traffic.messages, 1);
  EXPECT_EQ(traffic.bytes, 100);
  const auto level = team->rank() == 0 ? LinkLevel::server : LinkLevel::rack;
  EXPECT_EQ(traffic.bytes_by_level[static_cast<size_t>(level)], 100) << "rank " << team->rank();
}

TEST(Team, IsOfRanksThatThereAre) {
  const auto parent = world();
  const int own = parent->rank(), size = parent->size();
  EXPECT_THROW(make_team(*parent, {}, 1), InvalidArgument);
  EXPECT_THROW(make_team(*parent, {own, size}, 1), InvalidArgument);
  EXPECT_THROW(make_team(*parent, {own, own}, 1), InvalidArgument);
  EXPECT_THROW(make_team(*parent, {own, -1}, 1), InvalidArgument);
  if (size > 1) {
    EXPECT_THROW(make_team(*parent, {(own + 1) % size}, 1), InvalidArgument);
  }
  const auto alone = make_team(*parent, {own}, 2);
  EXPECT_THROW(alone->split(0, 0), Unsupported);
  EXPECT_THROW(alone->make_counters(1), Unsupported);
}

}  // namespace
}  // namespace pecia::comm
