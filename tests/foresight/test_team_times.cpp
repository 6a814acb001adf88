// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/core/error.hpp"
#include "lib/foresight/passes_of_teams.hpp"
#include "lib/foresight/request_time.hpp"
#include "lib/foresight/team_times.hpp"
#include "lib/schedule/simulate.hpp"
#include "tests/foresight/small_cluster.hpp"
#include "tests/foresight/small_grid.hpp"

namespace pecia::foresight {
namespace {

using schedule::PassKind;

constexpr int64_t longest = 1024;

/// A replica of a small model with all that it refers to.
struct SmallReplica {
  job::Job job;
  model::ModelConfig config = small_model(6);
  machines::Cluster cluster = small_cluster();
  resources::Resources resources;

  explicit SmallReplica(int cp) : resources(ring_of(cp, 256)) { resources.max_sequences = 12; }

  Replica replica() const { return {job, config, resources, DType::fp32}; }
  RequestTime time_of(const RequestShape& shape) const {
    return foresee(replica(), cluster, shape);
  }
};

TEST(ForeseenPasses, TakeTheTimesThatWerePlayedAndThoseBetween) {
  for (const int cp : {1, 2}) {
    const SmallReplica small(cp);
    const Replica replica = small.replica();
    ForeseenPasses passes(replica, small.cluster, longest);
    const auto ttft = [&](int64_t tokens, int64_t cached) {
      return small.time_of({tokens, cached, 1}).ttft_s;
    };
    EXPECT_DOUBLE_EQ(passes.prefill_s(256, 0), ttft(256, 0));
    EXPECT_DOUBLE_EQ(passes.prefill_s(64, 256), ttft(64, 256));
    const int64_t played = passes.played();
    EXPECT_DOUBLE_EQ(passes.prefill_s(64, 256), ttft(64, 256));
    EXPECT_EQ(passes.played(), played);
    for (const auto& [tokens, cached] :
         {std::pair{200, 0}, {96, 0}, {160, 600}, {32, 900}, {256, 500}, {12, 40}}) {
      const double expected = ttft(tokens, cached);
      EXPECT_NEAR(passes.prefill_s(tokens, cached), expected, 0.05 * expected)
          << cp << " ranks, " << tokens << " tokens after " << cached;
    }
    for (const int64_t context : {40, 500, 1000}) {
      const double expected = small.time_of({context, 0, 1}).tbt_s;
      EXPECT_NEAR(passes.decode_s(1, static_cast<double>(context)), expected, 0.02 * expected);
    }
  }
}

TEST(ForeseenPasses, OfAMixedPassTakeAsLongAsBothKindsOfRows) {
  const SmallReplica small(2);
  const Replica replica = small.replica();
  ForeseenPasses passes(replica, small.cluster, longest);
  const execute::TrialPasses trial = passes_of(replica, parallel::Ring::pass_kv);
  schedule::Plan plan = trial.feed(0, 1, 100, 300);
  const schedule::Plan step = trial.step(1, 5, 400, true);
  plan.items.insert(plan.items.end(), step.items.begin(), step.items.end());
  EXPECT_NEAR(passes.seconds(plan), passes.prefill_s(100, 300) + passes.decode_s(5, 400), 1e-12);
}

TEST(TeamTimes, ComeCloseToThePassesThatWerePlayed) {
  const SmallReplica small(2);
  const Replica replica = small.replica();
  ForeseenPasses passes(replica, small.cluster, longest);
  const schedule::TeamTimes times = team_times(replica, small.cluster, longest);
  const execute::TrialPasses trial = passes_of(replica, parallel::Ring::pass_kv);
  for (const schedule::Plan& plan :
       {trial.feed(0, 1, 256), trial.feed(0, 1, 256, 700), trial.feed(0, 1, 64, 256),
        trial.step(0, 12, 1000), trial.step(0, 2, 256), trial.step(0, 6, 300)}) {
    const double expected = passes.seconds(plan);
    EXPECT_NEAR(expected_seconds(plan, times), expected, 0.2 * expected)
        << plan.items.size() << " items of " << plan.items[0].rows.count << " tokens after "
        << plan.items[0].rows.first;
  }
}

/// What a team takes that is played alone, by its rates. The degree 3 is not played.
TEST(TeamTimes, OfTeamsThatChangeComeCloseToTheirPasses) {
  SmallReplica small(4);
  small.resources.elastic = true;
  small.resources.ring = parallel::Ring::pass_kv;
  small.resources.decode = parallel::DecodeMode::broadcast_q;
  const schedule::TeamTimes times = team_times(small.replica(), small.cluster, longest);
  ASSERT_EQ(times.degrees(), 4);
  for (int degree = 1; degree <= 4; ++degree) {
    SmallReplica alone = small;
    alone.resources.cp = degree;
    const execute::TrialPasses passes = passes_of(alone.replica(), parallel::Ring::pass_kv);
    std::vector<schedule::Plan> plans{
        read_by_team(passes, 256 * degree, 0), read_by_team(passes, 100 * degree, 600),
        step_of_team(passes, 1, 1, 300), step_of_team(passes, degree, 12, 1000)};
    for (const schedule::Plan& plan : plans) {
      const double played =
          replay(programs_of(alone.replica(), small.cluster, plan), small.cluster).seconds;
      EXPECT_NEAR(expected_seconds(plan, times), played, 0.25 * played)
          << degree << " instances, " << plan.items.size() << " × " << plan.items[0].rows.count;
    }
  }
  // More instances read a long prompt sooner; a short answer is made by one.
  EXPECT_LT(times.prefill_s(4, 0, 1024, 1024), times.prefill_s(2, 0, 1024, 512));
  EXPECT_LT(times.prefill_s(2, 0, 1024, 512), times.prefill_s(1, 0, 1024, 256));
  EXPECT_LT(times.decode_s(1, 1, 1, 100), times.decode_s(4, 1, 1, 100));
}

TEST(TeamTimes, PlayABatchOfTeamsThatChange) {
  SmallReplica small(4);
  small.resources.elastic = true;
  small.resources.decode = parallel::DecodeMode::broadcast_q;
  schedule::SchedulerLimits limits;
  limits.ring_size = 4;
  limits.elastic = true;
  limits.kv_tokens = limits.max_positions = 4096;
  limits.max_batch_tokens = 256;
  limits.max_sequences = 12;
  const schedule::TeamTimes times = team_times(small.replica(), small.cluster, longest);
  limits.team_times = times;
  const auto played =
      simulate(limits, times, std::vector<schedule::SimulatedRequest>(9, {.turns = {{800, 20}}}));
  EXPECT_EQ(played.answered, 9);
  // Nine requests on four instances: more than two of them one after the other, less than three.
  const double alone_s = times.prefill_s(1, 0, 800, 256) + 19 * times.decode_s(1, 1, 1, 810);
  EXPECT_GT(played.seconds, 9.0 / 4 * 0.7 * alone_s);
  EXPECT_LT(played.seconds, 3 * alone_s);
}

TEST(ForeseenPasses, AreThePassesOfABatch) {
  const SmallReplica small(2);
  const Replica replica = small.replica();
  ForeseenPasses passes(replica, small.cluster, longest);
  schedule::SchedulerLimits limits;
  limits.ring_size = 2;
  limits.kv_tokens = limits.max_positions = 4096;
  limits.max_batch_tokens = 256;
  limits.modes = passes_of(replica, parallel::Ring::pass_kv).modes;
  const auto played = simulate(
      limits, schedule::PassSeconds([&](const schedule::Plan& of) { return passes.seconds(of); }),
      {{.turns = {{800, 41}}}});
  ASSERT_EQ(played.answered, 1);
  const RequestTime alone = small.time_of({800, 0, 41});
  EXPECT_NEAR(played.ttft_s[0], alone.ttft_s, 0.03 * alone.ttft_s);
  EXPECT_NEAR(played.seconds, alone.ttft_s + 40 * alone.tbt_s, 0.03 * played.seconds);
}

}  // namespace
}  // namespace pecia::foresight
