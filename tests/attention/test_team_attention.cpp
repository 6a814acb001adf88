// SPDX-License-Identifier: Apache-2.0
/// Ring attention of teams that work side by side and change from pass to pass.

#include <mpi.h>

#include "lib/ranks/comm/communicator_over.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/attention/ringed.hpp"
#include "tests/support/random_teams.hpp"

namespace pecia::attention {
namespace {

using parallel::TeamPass;

/// Notes to whom this rank sends.
class NotesReceivers : public comm::CommunicatorOver {
 public:
  NotesReceivers()
      : CommunicatorOver(comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60))) {}

  std::unique_ptr<comm::Transfer> start_send_receive(std::span<const std::byte> send, int to,
                                                     std::span<std::byte> receive,
                                                     int from) override {
    note(send, to);
    return inner().start_send_receive(send, to, receive, from);
  }
  std::unique_ptr<comm::Transfer> start_all_to_all(const comm::Blocks& blocks) override {
    for (int to = 0; to < size(); ++to) note(blocks.send[to], to);
    return inner().start_all_to_all(blocks);
  }
  std::unique_ptr<comm::Transfer> start_exchange(const comm::Exchange& exchange,
                                                 const comm::Operation& operation) override {
    for (const auto& [bytes, to] : exchange.sends) note(bytes, to);
    return inner().start_exchange(exchange, operation);
  }

  std::unique_ptr<comm::Communicator> split(int color, int key) override {
    return inner().split(color, key);
  }
  std::unique_ptr<comm::Communicator> split_by_host() override { return inner().split_by_host(); }

  std::vector<int> receivers;

 private:
  void note(std::span<const std::byte> bytes, int to) {
    if (!bytes.empty() && to != rank()) receivers.push_back(to);
  }
};

TEST(TeamAttention, EqualsAttentionOverAllKeysWhateverTeamsDidBefore) {
  NotesReceivers comm;
  const int size = comm.size();
  int changes = 0, side_by_side = 0, without = 0, holders = 0;
  for (const DType dtype : {DType::fp32, DType::fp8})
    for (const uint64_t seed : {1, 2, 3}) {
      SCOPED_TRACE(fmt::format("seed {}, {}", seed, name_of(dtype)));
      test::RandomTeams teams(size, seed);
      Ringed ringed(comm, seed == 2 ? 9 : 0, dtype);
      std::vector<parallel::SequenceId> sequences;
      std::vector<int32_t> last;
      for (int iteration = 0; iteration < 25; ++iteration) {
        if (iteration % 4 == 0) {  // with other room on every instance
          std::vector<int64_t> reserved;
          for (int instance = 0; instance < size; ++instance) reserved.push_back(350 + instance);
          sequences.push_back(iteration);
          ringed.add(iteration, reserved);
        }
        if (iteration == 18) {  // the first one's children go on from it
          for (const int child : {100, 101}) ringed.add(child, 90, 0), sequences.push_back(child);
          sequences.erase(sequences.begin());
        }
        if (iteration == 22) ringed.remove(4), std::erase(sequences, 4);
        const auto drawn = teams.draw(ringed.map(), sequences);
        comm.receivers.clear();
        ringed.pass(drawn);
        const auto own = team_of(drawn, comm.rank());
        for (const int to : comm.receivers)
          ASSERT_TRUE(own && drawn[*own].team.index_of(to)) << "a message to rank " << to;
        if (testing::Test::HasFailure()) return;
        side_by_side += drawn.size() > 1 ? 1 : 0;
        without += own ? 0 : 1;
        for (const TeamPass& each : drawn) holders += each.team.holders > 0 ? 1 : 0;
        if (own) changes += std::exchange(last, drawn[*own].team.instances) != last ? 1 : 0;
      }
    }
  if (size < 3) return;
  EXPECT_GT(changes, 10);
  EXPECT_GT(side_by_side, 10);
  EXPECT_GT(holders, 10);
  EXPECT_GT(without, 0);
}

TEST(TeamAttention, GrowsAndShrinksWithoutMovingKeys) {
  NotesReceivers comm;
  const int size = comm.size();
  Ringed ringed(comm, 0);
  ringed.add(1, 200);
  parallel::Team all = parallel::team_of_all(size);
  ringed.pass({{all, {{1, 0, 40}}}});
  const int64_t held = ringed.map().held(1, comm.rank());
  // One computes, and the others only hold: masters of a decode step.
  parallel::Team masters = all;
  masters.holders = size - 1;
  masters.ring = AttentionExchange::broadcast_q;
  for (int64_t position = 40; position < 45; ++position)
    ringed.pass({{masters, {{1, position, 1, 0}}}});
  EXPECT_EQ(ringed.map().held(1, comm.rank()), held + (comm.rank() == 0 ? 5 : 0));
  ringed.pass({{all, {{1, 45, 3}}}});
  EXPECT_EQ(ringed.length(1), 48);
}

TEST(TeamAttention, KeepsKeysWhereThePassSaysWithoutAFurtherMessage) {
  NotesReceivers comm;
  const int size = comm.size();
  int placed = 0, gathered = 0;
  for (const DType dtype : {DType::fp32, DType::fp8})
    for (const uint64_t seed : {11, 12, 13}) {
      SCOPED_TRACE(fmt::format("seed {}, {}", seed, name_of(dtype)));
      test::RandomTeams teams(size, seed);
      Ringed ringed(comm, seed == 12 ? 9 : 0, dtype);
      const int64_t free = ringed.free_slots();
      std::vector<int64_t> reserved;
      for (int instance = 0; instance < size; ++instance) reserved.push_back(350 + instance);
      const std::vector<parallel::SequenceId> sequences{1, 2, 3};
      for (const parallel::SequenceId sequence : sequences) ringed.add(sequence, reserved);
      for (int iteration = 0; iteration < 20; ++iteration) {
        auto drawn = teams.draw(ringed.map(), sequences);
        teams.keep_some(ringed.map(), drawn);
        ringed.pass(drawn);  // checks rows and bytes
        if (testing::Test::HasFailure()) return;
        for (const TeamPass& each : drawn)
          for (const parallel::Placement& placement : each.placements) {
            ++placed;
            gathered += placement.gathers;
            if (placement.gathers == 0) continue;
            int64_t held = 0;
            for (int instance = 0; instance < size; ++instance) {
              held += ringed.map().held(placement.sequence, instance);
              if (placement.has_share(instance)) continue;
              EXPECT_EQ(ringed.map().held(placement.sequence, instance), 0);
              EXPECT_EQ(ringed.map().reserved(placement.sequence, instance), 0);
            }
            EXPECT_EQ(held, ringed.length(placement.sequence));
            ringed.reserve(placement.sequence, reserved);
          }
      }
      for (const parallel::SequenceId sequence : sequences) ringed.remove(sequence);
      EXPECT_EQ(ringed.free_slots(), free);
    }
  if (size == 1) return;
  EXPECT_GT(placed, 20);
  EXPECT_GT(gathered, 5);
}

TEST(TeamAttention, ScalesDownInTheLastPassOfAPrompt) {
  NotesReceivers comm;
  const int size = comm.size();
  if (size == 1) return;
  Ringed ringed(comm, 0);
  std::vector<int64_t> reserved(size, 20);
  reserved[1] = 100;
  ringed.add(1, reserved);
  const parallel::Team all = parallel::team_of_all(size);
  ringed.pass({{all, {{1, 0, 16}}}});
  ringed.pass({{all, {{1, 16, 30}}, {{1, {{1, 46 - ringed.map().held(1, 1)}}, 1}}}});
  EXPECT_EQ(ringed.map().holders(1), (std::vector<int>{1}));
  EXPECT_EQ(ringed.map().held(1, 1), 46);
  ringed.pass({{{.instances = {1}}, {{1, 46, 1, 0}}}});  // it decodes alone
  // It grows again: instance 0 takes new tokens, and nothing old moves.
  reserved = std::vector<int64_t>(size);
  reserved[0] = 10, reserved[1] = 50;
  ringed.reserve(1, reserved);
  ringed.pass({{{.instances = {0, 1}, .holders = 1, .ring = AttentionExchange::broadcast_q},
                {{1, 47, 1, 0}}}});
  EXPECT_EQ(ringed.map().held(1, 0), 1);
  EXPECT_EQ(ringed.map().held(1, 1), 47);
}

TEST(TeamAttention, RefusesPlacementsThatDoNotFit) {
  NotesReceivers comm;
  const int size = comm.size();
  if (size == 1) return;
  Ringed ringed(comm, 0);
  ringed.add(1, 50);
  const parallel::Team all = parallel::team_of_all(size);
  const auto refuses = [&](const parallel::Team& team, const parallel::Placement& placement) {
    EXPECT_THROW(ringed.pass({{team, {{1, 0, 8}}, {placement}}}), InvalidArgument);
  };
  refuses(all, {1, {{0, 7}}});          // a token has no place
  refuses(all, {1, {{0, 4}, {0, 4}}});  // one instance has two shares
  refuses(all, {1, {{size, 8}}});       // it is not in the team
  refuses(parallel::team_of_all(size, AttentionExchange::pass_q),
          {1, {{0, 8}}});  // keys do not travel
  refuses({.instances = {0}}, {1, {{0, 8}}});
}

TEST(TeamAttention, RefusesTeamsThatShareInstancesOrLackKeys) {
  NotesReceivers comm;
  const int size = comm.size();
  Ringed ringed(comm, 0);
  ringed.add(1, 50), ringed.add(2, 50);
  EXPECT_THROW(ringed.pass({{{{0}}, {{1, 0, 1, 0}}}, {{{0}}, {{2, 0, 1, 0}}}}), InvalidArgument);
  EXPECT_THROW(ringed.pass({{{{size}}, {{1, 0, 1, 0}}}}), InvalidArgument);
  EXPECT_THROW(ringed.pass({{{.instances = {0}, .holders = 1}, {{1, 0, 1, 0}}}}), InvalidArgument);
  if (size == 1) return;
  ringed.pass({{{{0}}, {{1, 0, 4, 0}}}});
  EXPECT_THROW(ringed.pass({{{{1}}, {{1, 4, 1, 0}}}}), InvalidArgument);  // instance 0 holds keys
}

}  // namespace
}  // namespace pecia::attention
