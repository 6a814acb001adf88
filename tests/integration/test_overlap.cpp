// SPDX-License-Identifier: Apache-2.0
/// Exchanges of a pass have work to hide behind: between the start of each and the wait for it the
/// rank computes. Counted by tests/support/work_clock.hpp, without any measured time.

#include <gtest/gtest.h>
#include <mpi.h>

#include "lib/engine/execute/replica.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/owned_compute.hpp"
#include "tests/support/replica.hpp"
#include "tests/support/work_clock.hpp"

namespace pecia::test {
namespace {

using parallel::Sharding;

constexpr int64_t layers = 2;
// Enough rows on each of four ranks for blocks and parts of attention; and too few.
constexpr int64_t long_pass = 4096, short_pass = 240;

/// Exposed operations of one prefill of `tokens` tokens on all ranks, which are SP × TP ones.
WorkClock prefill(int sp, int tp, Sharding sharding, int64_t tokens) {
  WorkClock clock;
  const auto world =
      clocked(comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60)), clock);
  const auto folder = golden("llama-gqa-fp32");
  const model::ModelConfig config = model::read_config(folder);
  EXPECT_EQ(config.layers, layers);
  const model::Weights weights(config, io::Checkpoint(folder), {},
                               execute::Replica::weight_cut(world->rank(), 1, tp));
  CpuCompute compute;
  execute::Replica replica(*world, config, weights, compute,
                           {.sp = sp, .tp = tp, .kv_tokens = tokens});
  schedule::Plan plan;
  plan.teams = {
      parallel::team_of_all(replica.groups().cp, parallel::AttentionExchange::pass_kv, sharding)};
  plan.added.push_back({0,
                        {schedule::NewSequence::no_parent,
                         0,
                         std::vector<int64_t>(replica.groups().cp, tokens),
                         {}}});
  plan.turns.push_back({0, {}, 0, 1 << 20});
  plan.items.push_back({{0, 0, tokens}, random_tokens(tokens, 96, 7), int64_t{1} << 20, -1});
  plan.pools.push_back({0, 0, 0, tokens});  // so all rows go through the whole last layer
  clock = {};
  replica.execute(plan);
  return clock;
}

int num_ranks() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// Of the embedding, which nothing comes before, and of the last product, which nothing follows.
constexpr int64_t at_the_ends = 2;

TEST(Overlap, HidesTheSumsOfTensorParallelism) {
  EXPECT_EQ(prefill(1, num_ranks(), Sharding::base, short_pass).count_exposed("all_reduce"),
            1 + 2 * layers);
  const WorkClock clock = prefill(1, num_ranks(), Sharding::base, long_pass);
  EXPECT_LE(clock.count_exposed("all_reduce"), at_the_ends);
  EXPECT_EQ(clock.exposed.size(), clock.count_exposed("all_reduce"));
}

TEST(Overlap, HidesTheSumsAndGathersOfSpTp) {
  const WorkClock at_once = prefill(1, num_ranks(), Sharding::sp_tp, short_pass);
  EXPECT_EQ(at_once.count_exposed("reduce_scatter"), 1 + 2 * layers);
  EXPECT_EQ(at_once.count_exposed("all_gather"), 2 * layers);
  const WorkClock clock = prefill(1, num_ranks(), Sharding::sp_tp, long_pass);
  EXPECT_LE(clock.count_exposed("reduce_scatter"), at_the_ends);
  EXPECT_LE(clock.count_exposed("all_gather"), 1);  // the first
}

TEST(Overlap, HidesTheExchangeOfHeads) {
  // Keys and values travel beside the projection of queries in any pass; with few rows queries and
  // outputs do not, of which the first one's wait is time for the others.
  const WorkClock at_once = prefill(num_ranks(), 1, Sharding::base, short_pass);
  EXPECT_EQ(at_once.count_exposed("send_receive"), 2 * layers);
  EXPECT_EQ(at_once.count_exposed("all_to_all"), 0);
  const WorkClock clock = prefill(num_ranks(), 1, Sharding::base, long_pass);
  EXPECT_EQ(clock.started, layers * (2 + 2 * (num_ranks() - 1)));
  EXPECT_TRUE(clock.exposed.empty()) << clock.exposed.begin()->first;
}

TEST(Overlap, HidesBothTogether) {
  const WorkClock clock = prefill(num_ranks() / 2, 2, Sharding::base, long_pass);
  EXPECT_LE(clock.count_exposed("all_reduce"), at_the_ends);
  EXPECT_EQ(clock.exposed.size(), clock.count_exposed("all_reduce"));
}

}  // namespace
}  // namespace pecia::test
