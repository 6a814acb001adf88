// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/simulation/choice.hpp"
#include "tests/simulation/small_job.hpp"

namespace pecia::simulation {
namespace {

using testing::HasSubstr;

Choice choice_of(const SmallJob& small, std::vector<schedule::SimulatedRequest> requests,
                 int ranks) {
  PassCosts costs(small.scenario());
  Batches batches(std::move(requests), small.config);
  return choose(costs, batches, ranks).value();
}

SmallJob open_grid() {
  SmallJob small;
  small.job.parallel.dp = small.job.parallel.sp = small.job.parallel.tp = std::nullopt;
  return small;
}

/// Replicas send nothing, and neither do teams of one instance each.
TEST(Choice, LetsManyShortRequestsStayOnARankWhereLinksAreSlow) {
  SmallJob small = open_grid();
  for (cluster_files::Link& link : small.cluster.links) link = {0.01, 50, false};
  const Choice choice = choice_of(small, requests_of(std::vector<int64_t>(16, 200), 5), 4);
  EXPECT_TRUE(choice.chosen.parallel.dp == 4 || choice.chosen.resources.elastic);
  EXPECT_EQ(choice.by_rule.parallel.cp.degree, 4);
  EXPECT_LT(choice.chosen.end->end_s, 0.95 * choice.by_rule.end->end_s);
  EXPECT_THAT(choice_text(choice), HasSubstr("by rule (cp 4, ring/auto+broadcast_q)"));
}

TEST(Choice, DividesTheOneLongRequest) {
  const Choice choice = choice_of(open_grid(), requests_of({2000}, 5), 4);
  EXPECT_EQ(choice.chosen.parallel.dp, 1);
  for (const LayoutForecast& other : choice.others)
    if (other.parallel.dp == 4) {
      EXPECT_GT(other.end->end_s, choice.chosen.end->end_s);
    }
}

/// A rank has no room for all weights (1.1 MB) beside its work and keys. TP sends over slow links what
/// all layers add up.
TEST(Choice, TakesStagesWhereTheJobLeavesThemOpenAndLinksAreSlow) {
  SmallJob small = open_grid();
  for (cluster_files::Link& link : small.cluster.links) link = {0.003, 50, false};
  small.cluster.rank.memory_gib = 1.75e6 / 0x1p30;
  small.job.kv.memory = 400'000;
  const auto requests = requests_of(std::vector<int64_t>(16, 200), 5);
  const Choice without = choice_of(small, requests, 4);
  EXPECT_GT(without.chosen.resources.sp * without.chosen.resources.tp, 1);
  small.job.parallel.pp = std::nullopt;
  const Choice choice = choice_of(small, requests, 4);
  EXPECT_GT(choice.chosen.resources.pp, 1);
  EXPECT_LT(choice.chosen.end->end_s, 0.95 * without.chosen.end->end_s);
  EXPECT_THAT(choice_text(choice), HasSubstr("pp "));
}

/// A difference that foresight cannot tell leaves the rule's modes on a grid that the job gives.
TEST(Choice, IsTheBestOrTheRulesModesWhereTheGainIsSmall) {
  for (const auto& prompts : {std::vector<int64_t>{1500}, std::vector<int64_t>{900, 300, 300, 200},
                              std::vector<int64_t>(12, 150)})
    for (const SmallJob& small : {SmallJob(), open_grid()}) {
      const Choice choice = choice_of(small, requests_of(prompts, 10), 4);
      const bool is_open = !small.job.parallel.dp;
      const bool is_rule = layout_text(choice.chosen) == layout_text(choice.by_rule);
      const double rule_s = choice.by_rule.end->end_s;
      if (!is_open && !is_rule) {
        EXPECT_LT(choice.chosen.end->end_s, (1 - least_gain) * rule_s);
      }
      for (const LayoutForecast& other : choice.others)
        EXPECT_GE(other.end->end_s,
                  !is_open && is_rule ? (1 - least_gain) * rule_s : choice.chosen.end->end_s);
    }
}

TEST(Choice, KeepsWhatTheJobGives) {
  SmallJob small = open_grid();
  small.job.parallel.dp = 2;
  small.job.parallel.tp = 2;
  const Choice choice = choice_of(small, requests_of(std::vector<int64_t>(16, 200), 5), 4);
  EXPECT_EQ(choice.chosen.parallel.dp, 2);
  EXPECT_EQ(choice.chosen.parallel.tp, 2);
  small = SmallJob();
  small.job.parallel.decode = parallel::DecodeMode::pass_q;
  const Choice modes = choice_of(small, requests_of({300}, 40), 4);
  EXPECT_EQ(modes.chosen.resources.decode, parallel::DecodeMode::pass_q);
  EXPECT_FALSE(modes.chosen.resources.elastic);
}

TEST(Choice, IsByTheFirstTokenWhereRequestsArrive) {
  auto requests = requests_of({1500, 60, 60, 60, 60, 60}, 20);
  for (size_t i = 0; i < requests.size(); ++i)
    requests[i].arrival_s = 0.01 * static_cast<double>(i);
  const Choice choice = choice_of(open_grid(), requests, 4);
  EXPECT_EQ(choice.aim, Aim::first_token);
  for (const LayoutForecast& other : choice.others)
    EXPECT_GE(other.end->mean_ttft_s, std::min(choice.chosen.end->mean_ttft_s,
                                               (1 - least_gain) * choice.by_rule.end->mean_ttft_s));
}

/// Up to the threshold a shifted step is faster, and beyond it is not.
TEST(Choice, SaysUpToWhereStepsShift) {
  SmallJob small;
  small.job.parallel.sp = 2;
  small.job.parallel.decode = parallel::DecodeMode::shift;
  const Choice choice = choice_of(small, requests_of(std::vector<int64_t>(4, 100), 30), 2);
  const auto threshold = choice.chosen.parallel.shift_threshold;
  ASSERT_TRUE(threshold);
  EXPECT_EQ(choice.chosen.resources.shift_threshold, threshold);
  PassCosts costs(small.scenario());
  const ReplicaPasses of(costs, choice.chosen.resources, Fidelity::replayed);
  const auto seconds = [&](int64_t rows, parallel::Sharding sharding) {
    PassShape shape = of.step(1, 0, rows, 115);
    shape.sharding = sharding;
    return costs.replayed(shape).seconds;
  };
  using parallel::Sharding;
  if (*threshold > 1) {
    EXPECT_LE(seconds(*threshold, Sharding::shift), seconds(*threshold, Sharding::base));
  }
  const int64_t beyond = *threshold + std::max<int64_t>(1, *threshold / 8);
  if (beyond < choice.chosen.resources.max_batch_tokens) {
    EXPECT_GT(seconds(beyond, Sharding::shift), seconds(beyond, Sharding::base));
  }
}

/// Of many ranks not all is played, and the layout is about as good as if all were.
TEST(Choice, OnManyRanksIsAboutAsGood) {
  SmallJob small = open_grid();
  small.job.parallel.sp = small.job.parallel.tp = 1;
  small.job.batch.max_batch_tokens = 4096;
  const auto requests = requests_of({3000, 2000, 2000}, 5);
  constexpr int ranks = 136;
  ASSERT_GT(ranks, all_played_ranks);
  const Choice choice = choice_of(small, requests, ranks);
  EXPECT_EQ(choice_text(choice_of(small, requests, ranks)), choice_text(choice));

  PassCosts costs(small.scenario());
  Batches batches(requests, small.config);
  SweepQuestion question;
  question.ranks = {ranks};
  question.kept = {.sp = 1, .tp = 1};
  question.pruning = Pruning::none;
  const Sweep all = sweep(costs, batches, question);
  EXPECT_EQ(all.counts.open, 0);
  for (const LayoutForecast& plan : all.plans) EXPECT_EQ(plan.fidelity, Fidelity::replayed);
  const auto chosen = std::ranges::find(all.plans, layout_text(choice.chosen), layout_text);
  ASSERT_NE(chosen, all.plans.end()) << layout_text(choice.chosen);
  EXPECT_LE(chosen->end->end_s, 1.1 * all.plans.front().end->end_s);
}

TEST(Choice, IsNoneWhereNothingFits) {
  SmallJob small;
  small.cluster.rank.memory_gib = 0.003;
  PassCosts costs(small.scenario());
  Batches batches(requests_of({20000}, 4), small.config);
  EXPECT_FALSE(choose(costs, batches, 2));
}

TEST(Choice, ByRuleIsTheLayoutOfTheResources) {
  SmallJob small;
  small.job.attention.sparse = job::Sparse::csa;
  small.job.parallel.sp = 2;
  const job::Job::Parallel levels = layout_by_rule(small.scenario(), 4);
  EXPECT_EQ(levels.cp.degree, 2);
  EXPECT_EQ(levels.sp, 2);
  small = SmallJob();
  small.job.parallel.dp = 2;
  const job::Job::Parallel alone = layout_by_rule(small.scenario(), 2);
  EXPECT_EQ(alone.cp.degree, 1);
  EXPECT_FALSE(alone.prefill);
}

}  // namespace
}  // namespace pecia::simulation
