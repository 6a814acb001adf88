// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lib/base/core/in_parallel.hpp"
#include "lib/simulation/replica_cost_model.hpp"
#include "tests/simulation/small_job.hpp"

namespace pecia::simulation {
namespace {

TEST(RankLowerBound, IsNeverMoreThanThePassOfAllRanks) {
  const cluster_files::Cluster cluster = small_cluster();
  for (const Grid& grid : grids())
    for (const bool prefills : {true, false}) {
      const schedule::Plan pass =
          prefills ? grid.passes().feed(0, 1, 200, 96) : grid.passes().step(0, 3, 96, true);
      const auto all = programs(small_model(6), grid, pass, Layers::folded);
      const ReplayResult time = replay(all, cluster);
      for (int rank = 0; rank < grid.ranks(); ++rank) {
        const PassCost own = rank_lower_bound(all[rank], rank, cluster);
        EXPECT_LE(own.times.end_s, time.ranks[rank].end_s * (1 + 1e-9)) << grid.name;
        EXPECT_GT(own.times.end_s, 0.5 * time.ranks[rank].end_s) << grid.name;
        EXPECT_NEAR(own.times.gemm_s, time.ranks[rank].gemm_s, 1e-12) << grid.name;
        EXPECT_NEAR(own.compute_s + own.memory_s + own.times.exposed_comm_s,
                    own.times.end_s - 50e-6, 1e-9)
            << grid.name;
      }
      if (grid.ranks() > 1) continue;
      EXPECT_NEAR(rank_lower_bound(all[0], 0, cluster).times.end_s, time.seconds, 1e-12);
    }
}

/// Where no link is shared and ranks compute as fast alone, it makes no difference to a rank what the
/// others do; where a link is shared, a rank that is like the others takes as long as they do.
TEST(RankLowerBound, OfRanksThatAreAlikeIsThatOfThePass) {
  cluster_files::Cluster cluster = small_cluster();
  for (const bool shared : {false, true}) {
    for (cluster_files::Link& link : cluster.links) link.shared = shared;
    cluster.ranks_per_server = 4;
    double seconds = 0, alike_s = 0, idle_s = 0, gain_s = 0;
    for (const Grid& grid : {Grid{"pass_kv", 4}, Grid{"tp", 1, 1, 4}, Grid{"ulysses", 1, 4}}) {
      const auto all =
          programs(small_model(6), grid, grid.passes().feed(0, 1, 192), Layers::folded);
      seconds = replay(all, cluster).seconds;
      alike_s = rank_estimate(all[3], 3, cluster).times.end_s;
      idle_s = rank_lower_bound(all[3], 3, cluster).times.end_s;
      if (shared) {
        EXPECT_GE(alike_s, idle_s) << grid.name;
        gain_s += alike_s - idle_s;
      } else {
        EXPECT_EQ(alike_s, idle_s) << grid.name;
      }
      EXPECT_NEAR(alike_s, seconds, 0.1 * seconds) << grid.name << (shared ? ", shared" : "");
    }
    EXPECT_EQ(gain_s > 0, shared);  // a ring may hide what it sends
  }
}

TEST(PassCosts, TakeNothingMoreOnceTheyAreReplayed) {
  const SmallJob small;
  PassCosts costs(small.scenario());
  PassShape shape;
  shape.degrees = {.cp = 4};
  shape.tokens = 200;
  const double effort = costs.replay_effort(shape);
  EXPECT_GT(effort, 4 * 500);
  shape.degrees.cp = 8;
  EXPECT_GT(costs.replay_effort(shape), 2 * effort);
  costs.replayed(shape);
  EXPECT_EQ(costs.replay_effort(shape), 0);
}

/// Threads that ask for the same and for other passes get what one thread gets.
TEST(PassCosts, AreTheSameFromManyThreads) {
  const SmallJob small;
  const auto seconds = [&](int threads) {
    PassCosts costs(small.scenario());
    constexpr size_t count = 48;
    std::vector<double> found(count);
    in_parallel(threads, count, [&](size_t i) {
      const ReplicaPasses of(costs, ring_of(1 << (i % 3), 256), Fidelity::replayed);
      const auto tokens = static_cast<int64_t>(64 * (1 + i / 3 % 4));
      found[i] = of.cost(of.prefill(1 << (i % 3), 1, tokens, 0)).seconds;
    });
    EXPECT_EQ(costs.num_replayed(), 12);
    return found;
  };
  EXPECT_EQ(seconds(8), seconds(1));
}

/// A pass's ring is the one that the cluster's rule names, if the rule is of such rings.
TEST(ReplicaPasses, GoByTheClustersRuleOfKeysAndQueries) {
  using parallel::AttentionExchange;
  SmallJob small;
  const auto ring_of_pass = [&](int64_t tokens, int64_t cached) {
    PassCosts costs(small.scenario());
    const ReplicaPasses passes(costs, ring_of(4, 256), Fidelity::replayed);
    return passes.prefill(4, 1, tokens, cached).ring;
  };
  const AttentionExchange by_times = ring_of_pass(200, 0);
  resources::Resources resources = ring_of(4, 256);
  resources.kv_dtype = small.scenario().kv;
  cluster_files::RingRule rule = ring_of(small.scenario().config, resources);
  rule.rule = {0, 1, std::log(10.0)};  // keys from a tenth of new tokens on
  small.cluster.ring_rule = rule;
  EXPECT_EQ(ring_of_pass(200, 0), AttentionExchange::pass_kv);
  EXPECT_EQ(ring_of_pass(64, 448), AttentionExchange::pass_kv);
  EXPECT_EQ(ring_of_pass(16, 496), AttentionExchange::pass_q);
  rule.rule = {0, 0, by_times == AttentionExchange::pass_kv ? -1.0 : 1.0};
  small.cluster.ring_rule = rule;
  EXPECT_NE(ring_of_pass(200, 0), by_times);
  small.cluster.ring_rule->ranks = 2;
  EXPECT_EQ(ring_of_pass(200, 0), by_times) << "the rule of other rings";
}

}  // namespace
}  // namespace pecia::simulation
