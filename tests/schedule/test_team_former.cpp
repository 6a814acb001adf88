// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/schedule/team_former.hpp"
#include "tests/schedule/fake_teams.hpp"
#include "tests/schedule/small_state.hpp"

namespace pecia::test {
namespace {

using schedule::ActiveSequence;
using schedule::Doing;
using schedule::Plan;
using schedule::SchedulerState;
using schedule::TeamFormer;

/// A sequence on these instances, whose prompt was read by the first of them.
ActiveSequence& answering(SchedulerState& state, int64_t row, const std::vector<int>& on) {
  ActiveSequence& sequence = begin(state, ask(row, 10, 20), on);
  read(state, sequence, 10, on.front());
  sequence.unfed = {5};
  sequence.result.tokens = {5};
  return sequence;
}

std::vector<int32_t> sorted_team(const Plan& plan) {
  std::vector<int32_t> team = plan.teams.front().instances;
  std::ranges::sort(team);
  return team;
}

void end_pass(SchedulerState& state, const Plan& plan) {
  for (const int32_t instance : plan.teams.front().instances)
    state.doing[instance] = Doing::nothing;
  for (ActiveSequence& sequence : state.active) sequence.in_pass = 0;
}

TEST(TeamFormer, LetsAConnectedSetOfSequencesDecodeTogether) {
  SchedulerState state(teams_of(4, 1000));
  TeamFormer former(state.limits);
  answering(state, 0, {0, 1});
  answering(state, 1, {3});
  answering(state, 2, {1, 2});
  const auto first = former.form(state, {}, {}, 0), second = former.form(state, {}, {}, 0);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(sorted_team(*first), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(first->items.size(), 2u);
  EXPECT_EQ(sorted_team(*second), (std::vector<int32_t>{3}));
  EXPECT_FALSE(former.form(state, {}, {}, 0)) << "all instances are in a pass";
}

TEST(TeamFormer, LetsAPromptHaveItsInstancesFirst) {
  schedule::SchedulerLimits limits = teams_of(2, 1000);
  limits.max_instances = 1;
  SchedulerState state(limits);
  TeamFormer former(state.limits);
  answering(state, 0, {0});
  ActiveSequence& prompt = begin(state, ask(1, 40, 5), {0, 1});
  state.doing[1] = Doing::answers;
  EXPECT_FALSE(former.form(state, {&prompt}, {}, 0)) << "instance 0 waits for instance 1";
  state.doing[1] = Doing::nothing;
  const auto plan = former.form(state, {&prompt}, {}, 0);
  ASSERT_TRUE(plan);
  EXPECT_EQ(sorted_team(*plan), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(plan->items.front().rows.count, 32) << "max_batch_tokens for each";
  EXPECT_EQ(prompt.result.mode, "elastic:2");
}

TEST(TeamFormer, TellsInstancesOnlyWhatTheyDoNotKnow) {
  SchedulerState state(teams_of(2, 1000));
  TeamFormer former(state.limits);
  ActiveSequence& sequence = answering(state, 0, {0});
  auto plan = former.form(state, {}, {}, 0);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->added.size(), 1u);
  EXPECT_EQ(plan->added.front().state.length, 10) << "as it was before the pass";
  EXPECT_EQ(plan->turns.size(), 1u);
  end_pass(state, *plan);
  plan = former.form(state, {}, {}, 0);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->added.empty() && plan->turns.empty());
  end_pass(state, *plan);
  sequence.changed = true;
  plan = former.form(state, {}, {}, 0);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->added.size(), 1u);
  end_pass(state, *plan);

  // Another sequence's plan tells instance 0, and nobody else, that this one has ended.
  state.end(state.active.begin());
  answering(state, 1, {1});
  plan = former.form(state, {}, {}, 0);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->removed.empty());
  answering(state, 2, {0});
  plan = former.form(state, {}, {}, 0);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->removed, (std::vector<int64_t>{0}));
}

TEST(TeamFormer, LetsAnAnswerStayWhereItsStateIs) {
  for (const bool has_states : {false, true}) {
    schedule::SchedulerLimits limits = teams_of(2, 1000);
    limits.has_states = has_states;
    SchedulerState state(limits);
    TeamFormer former(state.limits);
    const ActiveSequence& sequence = answering(state, 0, {0, 1});
    const auto plan = former.form(state, {}, {}, 0);
    ASSERT_TRUE(plan);
    const int32_t owner = plan->items.front().rows.owner;
    EXPECT_EQ(plan->teams.front().instances.at(owner), has_states ? 0 : 1) << "1 has more room";
    end_pass(state, *plan);
    if (!has_states) continue;
    state.map.set_reserved(sequence.id, 0, state.map.held(sequence.id, 0));
    const auto next = former.form(state, {}, {}, 0);
    ASSERT_TRUE(next);
    EXPECT_EQ(next->teams.front().instances.at(next->items.front().rows.owner), 1);
    EXPECT_EQ(state.map.state_holder(sequence.id), 1) << "0 is full";
  }
}

TEST(TeamFormer, DecodesNothingThatWouldNotEndInTime) {
  SchedulerState state(teams_of(1, 1000));
  TeamFormer former(state.limits);
  answering(state, 0, {0});
  EXPECT_FALSE(former.form(state, {}, schedule::PassBudget{.decodes = false}, 0));
  EXPECT_TRUE(former.form(state, {}, {}, 0));
}

}  // namespace
}  // namespace pecia::test
