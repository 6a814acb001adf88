// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "lib/engine/schedule/time_budget.hpp"
#include "tests/schedule/small_state.hpp"

namespace pecia::test {
namespace {

using schedule::PassBudget;
using schedule::Plan;
using schedule::SchedulerLimits;
using schedule::SchedulerState;
using schedule::TimeBudget;

SchedulerLimits ends_at(double end_s, bool keeps_kv = false, bool assumed = false) {
  SchedulerLimits limits = small_limits();
  limits.time = schedule::TimeLimit{end_s, second_passes(), keeps_kv, assumed};
  return limits;
}

TEST(TimeBudget, WithoutAnEndEverythingIsInTime) {
  const SchedulerState state(small_limits());
  const TimeBudget time(state.limits);
  EXPECT_FALSE(time.limited());
  EXPECT_TRUE(time.in_time_alone(state, ask(0, 1000, 1000), 1e9));
  EXPECT_TRUE(time.in_time(state, ask(0, 1000, 1000), 1e9));
  EXPECT_EQ(time.of_pass(state, 1e9).times, nullptr);
  EXPECT_EQ(PassBudget{}.rows({}, 0, 123, 10), 123);
}

/// A prompt of 200 tokens takes two passes, and an answer of 10 tokens ten.
TEST(TimeBudget, CountsTheWorkUnderWay) {
  SchedulerState state(ends_at(30));
  const TimeBudget time(state.limits);
  EXPECT_NEAR(time.seconds_alone(state, 200, 10), 12, 1e-6);
  EXPECT_TRUE(time.in_time_alone(state, ask(0, 200, 10), 17.9));
  EXPECT_FALSE(time.in_time_alone(state, ask(0, 200, 10), 18.1));
  begin(state, ask(1, 500, 10));
  EXPECT_TRUE(time.in_time(state, ask(0, 200, 10), 12.9)) << "both answers go together";
  EXPECT_FALSE(time.in_time(state, ask(0, 200, 10), 13.1));
}

TEST(TimeBudget, TakesTheLastPromptBackFirst) {
  SchedulerState state(ends_at(20));
  const TimeBudget time(state.limits);
  begin(state, ask(0, 100, 10));
  schedule::ActiveSequence& read_some = begin(state, ask(1, 200, 10));
  const auto& unread = begin(state, ask(2, 100, 10));
  read(state, read_some, 100);
  // Three passes of prompts, and ten of answers.
  EXPECT_FALSE(time.too_slow(state, 6.9));
  EXPECT_EQ(time.too_slow(state, 7.1), unread.id);
  state.give_back(unread.id);
  state.give_back(0);
  EXPECT_EQ(state.late.size(), 2u);
  // What was read is given up when 11 s are more than 1.25 times the time that is left.
  EXPECT_FALSE(time.too_slow(state, 11));
  EXPECT_EQ(time.too_slow(state, 11.5), read_some.id);
  EXPECT_FALSE(TimeBudget(ends_at(20, true)).too_slow(state, 11.5)) << "it is kept";
  EXPECT_FALSE(TimeBudget(ends_at(20, false, true)).too_slow(state, 11.5)) << "it is assumed";
}

TEST(TimeBudget, BeginsWhatIsNearestToAnAnswerWhereNothingElseIsLeft) {
  SchedulerState state(ends_at(5));
  const TimeBudget time(state.limits), keeping(ends_at(5, true));
  for (const int64_t tokens : {900, 300, 600})
    state.late.push_back(state_of(ask(tokens, tokens, 50)));
  EXPECT_TRUE(time.begins_anyway(state, 1));
  EXPECT_FALSE(time.begins_anyway(state, 5));
  EXPECT_EQ(time.late_to_begin(state), 1u);
  EXPECT_EQ(keeping.late_to_begin(state), 0u);
  state.any_done = true;
  EXPECT_FALSE(time.begins_anyway(state, 1));
  EXPECT_TRUE(keeping.begins_anyway(state, 1));
}

TEST(TimeBudget, ForgetsOnlyAnAssumedEnd) {
  TimeBudget stated(ends_at(5)), assumed(ends_at(5, false, true));
  EXPECT_FALSE(stated.forget_assumed_end());
  EXPECT_TRUE(assumed.forget_assumed_end());
  EXPECT_FALSE(assumed.limited());
  EXPECT_FALSE(assumed.forget_assumed_end());
}

TEST(TimeBudget, LetsAnswersGoFirstWhereTimeIsShort) {
  SchedulerState state(ends_at(20));
  const TimeBudget time(state.limits);
  schedule::ActiveSequence& answering = begin(state, ask(0, 100, 10));
  EXPECT_TRUE(time.of_pass(state, 0).answers_first) << "no decode pass was measured yet";
  state.times.passes->decode.add({1, 1, 101}, 1);
  EXPECT_FALSE(time.of_pass(state, 0).answers_first);
  EXPECT_TRUE(time.of_pass(state, 10).answers_first);
  read(state, answering, 100);
  EXPECT_TRUE(time.of_pass(state, 18).decodes);
  EXPECT_FALSE(time.of_pass(state, 19.5).decodes);
}

TEST(PassBudget, CutsAChunkToWholeUnits) {
  schedule::PassTimes times{schedule::RateFit({1e-9, 0.01, 1e-12}),
                            schedule::RateFit({1e-9, 0.01, 1e-12})};
  const PassBudget budget{.left_s = 1.005, .times = &times};
  EXPECT_EQ(budget.rows({}, 0, 100, 8), 100);
  EXPECT_EQ(budget.rows({}, 0, 200, 8), 96);
  EXPECT_EQ(budget.rows({}, 0, 200, 200), 200) << "the first pass is tried in any case";
  times.prefill.add({1, 100, 0}, 1);
  EXPECT_EQ(budget.rows({}, 0, 200, 200), 0);
  const PassBudget short_one{.left_s = 0.5, .times = &times};
  EXPECT_EQ(short_one.rows({}, 0, 200, 8), 0) << "fewer than 64 rows are not worth a pass";
}

}  // namespace
}  // namespace pecia::test
