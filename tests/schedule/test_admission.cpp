// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/schedule/admission.hpp"
#include "tests/schedule/fake_teams.hpp"
#include "tests/schedule/small_state.hpp"

namespace pecia::test {
namespace {

using schedule::Admission;
using schedule::Grant;
using schedule::Room;
using schedule::SchedulerState;
using schedule::Slots;

TEST(Admission, TakesTheSameSlotsOnEveryInstance) {
  const SchedulerState state(small_limits(2, 100));
  const Admission admission(state.limits);
  Room left = state.room();
  // Each of two ranks has half of a prompt and of an answer.
  const auto first = admission.request(state, *state_of(ask(0, 100, 20)), left);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->reserved, (Slots{60, 60}));
  EXPECT_EQ(left[1].free_slots, 40);
  EXPECT_FALSE(admission.request(state, *state_of(ask(1, 100, 20)), left));
  EXPECT_TRUE(admission.request(state, *state_of(ask(2, 60, 20)), left));
}

TEST(Admission, KeepsSlotsBackForOneBranchAtATime) {
  SchedulerState state(small_limits(1, 100));
  const Admission admission(state.limits);
  const auto fork = state_of(fork_of(30, {10, 30, 10}));
  Room left = state.room();
  const auto grant = admission.request(state, *fork, left);
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->reserved, (Slots{30}));
  EXPECT_EQ(grant->credit, (Slots{40})) << "of the largest branch";
  state.begin(fork, grant->reserved, grant->credit);
  EXPECT_EQ(state.free_slots(), (Slots{30}));
  state.end(state.active.begin());  // the prefix was read
  fork->next_branch = 1;

  const auto on_credit = admission.branch(state, *fork);
  ASSERT_TRUE(on_credit && on_credit->on_credit);
  EXPECT_EQ(on_credit->reserved, (Slots{20}));
  state.begin_branch(fork, on_credit->reserved, true);
  EXPECT_EQ(state.free_slots(), (Slots{30})) << "20 of the 40 are kept back still";
  EXPECT_FALSE(admission.branch(state, *fork)) << "it needs 40";
  fork->next_branch = 3;
  const auto beside = admission.branch(state, *fork);
  ASSERT_TRUE(beside);
  EXPECT_FALSE(beside->on_credit);
}

/// The beginning of each fork has a state until its last branch has ended.
TEST(Admission, BeginsAsManyForksAsThereIsRoomForStates) {
  for (const bool has_states : {true, false}) {
    schedule::SchedulerLimits limits = small_limits();
    limits.max_sequences = 1;
    limits.has_states = has_states;
    SchedulerState state(limits);
    const Admission admission(state.limits);
    const auto fork = state_of(fork_of(30, {10, 30}));
    Room left = state.room();
    const auto grant = admission.request(state, *fork, left);
    ASSERT_TRUE(grant);
    state.begin(fork, grant->reserved, grant->credit);
    state.end(state.active.begin());  // the prefix was read
    EXPECT_EQ(state.forks_under_way(), 1);
    EXPECT_NE(admission.request(state, *state_of(fork_of(30, {10})), left).has_value(), has_states);
    EXPECT_TRUE(admission.request(state, *state_of(ask(1, 30, 5)), left));
  }
}

TEST(Admission, WhereTeamsChangeGivesARequestTheFewestInstances) {
  SchedulerState state(teams_of(3, 100));
  const Admission admission(state.limits);
  begin(state, ask(9, 15, 5), {0});
  state.doing[1] = schedule::Doing::answers;
  Room left = state.room();
  EXPECT_FALSE(left[1].idle);
  EXPECT_EQ(left[0].unread.front().tokens, 15);
  const auto one = admission.request(state, *state_of(ask(0, 60, 10)), left);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->reserved, (Slots{0, 0, 70})) << "instance 1 is in a pass, 0 has less to spare";
  const auto several = admission.request(state, *state_of(ask(1, 120, 30)), left);
  ASSERT_TRUE(several);
  EXPECT_EQ(several->reserved, (Slots{67, 83, 0}));

  // The branches of a fork meet on its instances.
  const auto fork = state_of(fork_of(10, {10, 60}));
  state.begin(fork, {0, 0, 10}, {0, 0, 70});
  fork->next_branch = 1;
  state.begin_branch(fork, {0, 0, 20}, true);
  EXPECT_FALSE(admission.branch(state, *fork));
}

TEST(Admission, HasRoomForWhatFollowsThoseThatWait) {
  SchedulerState state(small_limits(1, 200));
  const Admission admission(state.limits);
  EXPECT_TRUE(admission.has_room(state, 200, 50));
  EXPECT_FALSE(admission.has_room(state, 201, 50));
  state.waiting.push_back(state_of(ask(0, 50, 50)));
  EXPECT_TRUE(admission.has_room(state, 100, 50));
  EXPECT_FALSE(admission.has_room(state, 101, 50));
  EXPECT_FALSE(admission.may_be_overtaken(state, *state.waiting.front(), state.room()));
  state.waiting.push_back(state_of(ask(0, 60, 10)));
  EXPECT_FALSE(admission.has_room(state, 1, 1)) << "a pass is full";
}

TEST(Admission, LetsOthersGoFirstWhereARequestOnlyWaitsForAnInstance) {
  schedule::SchedulerLimits limits = teams_of(2, 100);
  limits.team_times = even_times(2);
  limits.objective = job::Objective::ttft;
  SchedulerState state(limits);
  const Admission admission(state.limits);
  const Room left = state.room();
  EXPECT_TRUE(admission.may_be_overtaken(state, *state_of(ask(0, 190, 10)), left));
  EXPECT_FALSE(admission.may_be_overtaken(state, *state_of(ask(0, 191, 10)), left));
  state.waiting.push_back(state_of(ask(0, 140, 10)));
  EXPECT_TRUE(admission.has_room(state, 50, 40));
  EXPECT_FALSE(admission.has_room(state, 51, 40));
}

TEST(Admission, SaysWhichBranchesAreTooLarge) {
  const SchedulerState state(small_limits(1, 100));
  const Admission admission(state.limits);
  const batch::Request fork = fork_of(50, {40, 41, 10});
  EXPECT_FALSE(admission.fits(state, fork));
  const auto refused = admission.too_large(state, fork);
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused.front().first, 2u);
  EXPECT_TRUE(refused.front().second.starts_with("needs 101 KV slots on each rank, there are 100"));
  EXPECT_EQ(admission.too_large(state, fork_of(101, {1, 1})).size(), 3u) << "all need the prefix";
  EXPECT_TRUE(admission.fits(state, ask(0, 90, 10)));
  EXPECT_TRUE(admission.too_large(state, ask(0, 90, 10)).empty());
}

}  // namespace
}  // namespace pecia::test
