// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/schedule/ring_former.hpp"
#include "tests/schedule/fake_teams.hpp"
#include "tests/schedule/small_state.hpp"

namespace pecia::test {
namespace {

using schedule::ActiveSequence;
using schedule::PassBudget;
using schedule::Plan;
using schedule::RingFormer;
using schedule::SchedulerState;
using schedule::Selection;

std::vector<int64_t> counts(const Plan& plan) {
  std::vector<int64_t> counts;
  for (const auto& item : plan.items) counts.push_back(item.rows.count);
  return counts;
}

/// Its prompt was read, and its answer has begun.
ActiveSequence& answering(SchedulerState& state, int64_t row) {
  ActiveSequence& sequence = begin(state, ask(row, 10, 20), {0, 1});
  read(state, sequence, 10);
  sequence.unfed = {5};
  sequence.result.tokens = {5};
  return sequence;
}

TEST(RingFormer, ReadsPromptsAndThenLetsAllDecode) {
  SchedulerState state(small_limits(2));
  RingFormer former(state.limits);
  ActiveSequence& prompt = begin(state, ask(0, 150, 5), {0, 1});
  for (const int64_t row : {1, 2}) answering(state, row);
  for (const int64_t tokens : {100, 50}) {
    const auto plan = former.form(state, {&prompt}, {}, 0);
    ASSERT_TRUE(plan);
    EXPECT_EQ(counts(*plan), (std::vector<int64_t>{tokens}));
    EXPECT_EQ(plan->teams.front().instances, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(prompt.in_pass, tokens) << "the state has them as cached";
    prompt.in_pass = 0, prompt.fed += tokens;
  }
  prompt.unfed = {7};
  const auto plan = former.form(state, {}, {}, 0);
  ASSERT_TRUE(plan);
  EXPECT_EQ(counts(*plan), (std::vector<int64_t>{1, 1, 1}));
  std::vector<int> rows(2);
  for (const auto& item : plan->items) ++rows[item.rows.owner];
  EXPECT_EQ(rows[0] + 2 * rows[1], 4) << "two rows of one rank, and one of the other";
}

TEST(RingFormer, FillsAChunkedPassBesideAnswers) {
  schedule::SchedulerLimits limits = small_limits(2);
  limits.policy = job::Policy::chunked;
  SchedulerState state(limits);
  RingFormer former(state.limits);
  answering(state, 0);
  ActiveSequence& prompt = begin(state, ask(1, 150, 5), {0, 1});
  const auto plan = former.form(state, {&prompt}, {}, 0);
  ASSERT_TRUE(plan);
  EXPECT_EQ(counts(*plan), (std::vector<int64_t>{1, 96})) << "99 tokens in whole units of 4";
}

TEST(RingFormer, KeepsToWhatTimeAllows) {
  SchedulerState state(small_limits(2));
  RingFormer former(state.limits);
  answering(state, 0);
  ActiveSequence& prompt = begin(state, ask(1, 50, 5), {0, 1});
  EXPECT_FALSE(former.form(state, {}, PassBudget{.decodes = false}, 0));
  EXPECT_EQ(state.news.added.size(), 2u) << "nobody was told yet";
  const auto plan = former.form(state, {&prompt}, PassBudget{.answers_first = true}, 0);
  ASSERT_TRUE(plan);
  EXPECT_EQ(counts(*plan), (std::vector<int64_t>{1}));
  EXPECT_EQ(plan->added.size(), 2u);
  EXPECT_TRUE(state.news.added.empty());
}

/// Passes of 1 ms and 1 ms for each row of a rank are short with 128 of these on each of two ranks.
TEST(RingFormer, ReadsInShortPassesWhereRequestsWaitLeast) {
  for (const bool fixed : {false, true}) {
    schedule::SchedulerLimits limits = small_limits(2, 10000);
    limits.objective = job::Objective::ttft;
    limits.team_times = even_times(2);
    limits.max_batch_tokens = 1000;
    if (fixed) limits.levels_from = 1 << 20;
    SchedulerState state(limits);
    RingFormer former(state.limits);
    ActiveSequence& first = begin(state, ask(0, 100, 5), {0, 1});
    ActiveSequence& second = begin(state, ask(1, 300, 5), {0, 1});
    const auto plan = former.form(state, {&first, &second}, {}, 0);
    ASSERT_TRUE(plan);
    EXPECT_EQ(counts(*plan), fixed ? (std::vector<int64_t>{100, 300}) : (std::vector<int64_t>{100}))
        << "a part of the second would let the first wait";
    first.in_pass = second.in_pass = 0;
    if (fixed) second.fed = 300, second.unfed = {7};
    first.begun = false;
    const auto next =
        former.form(state, fixed ? schedule::Selection{} : schedule::Selection{&second}, {}, 0);
    ASSERT_TRUE(next);
    EXPECT_EQ(counts(*next), (std::vector<int64_t>{fixed ? 1 : 256}));
  }
}

TEST(RingFormer, LetsAnswersGoBeforeALongPromptWhereRequestsWaitLeast) {
  schedule::SchedulerLimits limits = small_limits(2, 10000);
  limits.objective = job::Objective::ttft;
  limits.team_times = even_times(2);
  SchedulerState state(limits);
  RingFormer former(state.limits);
  answering(state, 0);
  ActiveSequence& prompt = begin(state, ask(1, 3000, 5), {0, 1});
  prompt.origin->patience_s = 100;
  EXPECT_EQ(counts(former.form(state, {&prompt}, {}, 0).value()), (std::vector<int64_t>{1}))
      << "20 tokens take less than the prompt";
  EXPECT_EQ(counts(former.form(state, {&prompt}, {}, 200).value()), (std::vector<int64_t>{100}))
      << "it is late";
}

TEST(RingFormer, LeavesAnswersWhereTheirStatesAre) {
  schedule::SchedulerLimits limits = small_limits(2);
  limits.has_states = true;
  SchedulerState state(limits);
  RingFormer former(state.limits);
  for (int64_t row = 0; row < 3; ++row)
    state.map.set_reserved(answering(state, row).id, 0, 100);  // rank 0 has read all of the prompt
  const int64_t share = state.active.front().deal_limit;
  EXPECT_EQ(share, 10) << "half of the answer";
  for (int64_t step = 0; step < 2 * share - 1; ++step) {
    const auto plan = former.form(state, {}, {}, 0);
    ASSERT_TRUE(plan);
    std::vector<int32_t> owners;
    for (const schedule::PlanItem& item : plan->items) owners.push_back(item.rows.owner);
    EXPECT_EQ(owners,
              step < share ? (std::vector<int32_t>{0, 1, 0}) : (std::vector<int32_t>{1, 0, 1}))
        << "step " << step;
    for (ActiveSequence& sequence : state.active) sequence.in_pass = 0, sequence.unfed = {5};
  }
}

TEST(RingFormer, ReadsASaveBeforeItComputes) {
  SchedulerState state(small_limits(2));
  RingFormer former(state.limits);
  ActiveSequence& first = begin(state, ask(0, 50, 5), {0, 1});
  ActiveSequence& saved = begin(state, ask(1, 150, 5, 90), {0, 1});
  saved.request().saved.folder = "kept";
  const auto plan = former.form(state, {&first, &saved}, {}, 0);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->restore, "kept");
  EXPECT_EQ(counts(*plan), (std::vector<int64_t>{88})) << "in whole units of 4";
}

}  // namespace
}  // namespace pecia::test
