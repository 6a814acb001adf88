// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/schedule/ring_former.hpp"
#include "lib/engine/schedule/token_pace.hpp"
#include "tests/schedule/fake_teams.hpp"
#include "tests/schedule/small_state.hpp"

namespace pecia::test {
namespace {

using schedule::ActiveSequence;
using schedule::Plan;
using schedule::SchedulerLimits;
using schedule::SchedulerState;
using schedule::TokenPace;

/// A millisecond for each pass and each row.
SchedulerLimits paced(double tbt_s, int instances = 1) {
  SchedulerLimits limits = small_limits(instances, 5000);
  limits.max_batch_tokens = 1000;
  limits.team_times = even_times(instances);
  limits.tbt_s = tbt_s;
  return limits;
}

/// Its prompt was read, and its answer has begun at 0 s.
ActiveSequence& answering(SchedulerState& state, int64_t row) {
  ActiveSequence& sequence = begin(state, ask(row, 10, 20));
  read(state, sequence, 10);
  sequence.unfed = {5};
  sequence.result.tokens = {5};
  sequence.token_s = 0;
  return sequence;
}

Plan of_all(const SchedulerState& state) {
  Plan plan;
  plan.teams = {parallel::team_of_all(state.limits.ring_size)};
  return plan;
}

TEST(TokenPace, LeavesTimeForThePassOfTokensAfterThePrompt) {
  SchedulerState state(paced(0.2005));
  EXPECT_EQ(TokenPace(state, of_all(state), 0).rows(0, 500, 2, true), 500) << "nobody waits";
  answering(state, 0), answering(state, 1);
  // 1 ms and 1 ms for each row of the prompt; then 1 ms, and 1 ms for each of the two tokens.
  const TokenPace pace(state, of_all(state), 0);
  EXPECT_EQ(pace.rows(0, 500, 2, true), 196);
  EXPECT_EQ(pace.rows(0, 500, 100, true), 100) << "in whole units";
  EXPECT_EQ(pace.rows(0, 195, 2, true), 195) << "it has a token to make then, too";
  EXPECT_EQ(pace.rows(0, 196, 2, false), 196);
  EXPECT_EQ(pace.rows(0, 196, 2, true), 194);
  EXPECT_EQ(TokenPace(state, of_all(state), 0.1).rows(0, 500, 2, true), 96) << "0.1 s are gone";
}

TEST(TokenPace, CountsThePromptsThatThePassHasAlready) {
  SchedulerState state(paced(0.2005));
  answering(state, 0);
  TokenPace pace(state, of_all(state), 0);
  pace.add(0, 50, true);
  EXPECT_EQ(pace.rows(0, 500, 1, false), 146);
  pace.add(0, 100, false);
  EXPECT_EQ(pace.rows(0, 500, 1, false), 0) << "46 are not worth it";
}

TEST(TokenPace, ReadsAtLeastWhatIsWorthAPass) {
  SchedulerState state(paced(0.01, 2));
  answering(state, 0);
  EXPECT_EQ(TokenPace(state, of_all(state), 0).rows(0, 500, 4, true), 128);
  EXPECT_EQ(TokenPace(state, of_all(state), 0).rows(0, 30, 4, true), 30);
}

/// The keys of 1000 tokens travel for a second, so a pass is late in any case.
TEST(TokenPace, ReadsMoreWhereKeysTravelForLong) {
  SchedulerLimits limits = paced(0.1, 2);
  const schedule::RateFit fit({1e-3, 1e-3, 1e-9});
  limits.team_times.emplace(
      schedule::PassTimes{fit, fit},
      schedule::TeamCosts{.bytes_per_second = 1000, .kv_bytes_per_token = 1, .layers = 1}, 2);
  SchedulerState state(limits);
  answering(state, 0);
  // A row costs 1 ms, and another for its keys: 256 of each of two instances take less than a second.
  EXPECT_EQ(TokenPace(state, of_all(state), 0).rows(1000, 5000, 4, true), 512);
}

/// Its other instance reads a prompt until 0.1 s, so nobody gains if this one does nothing.
TEST(TokenPace, ReadsAsLongAsAnAnswerIsHeldUpElsewhere) {
  SchedulerLimits limits = teams_of(2, 1000);
  limits.team_times = even_times(2);
  limits.tbt_s = 1e-3;
  SchedulerState state(limits);
  ActiveSequence& both = begin(state, ask(0, 10, 20), {0, 1});
  read(state, both, 10);
  let_wait(state, {{1}, 0, parallel::AttentionExchange::pass_kv, {}});
  state.doing[1] = schedule::Doing::prompts;
  EXPECT_TRUE(instances_of_waiting(state).empty());
  Plan plan;
  plan.teams = {{{0}, 0, parallel::AttentionExchange::pass_kv, {}}};
  const auto rows = [&](double until_s) {
    return TokenPace(state, plan, 0, {0, until_s}).rows(0, 500, 1, true);
  };
  EXPECT_EQ(rows(0.1), 98);
  EXPECT_EQ(rows(0.03), 0) << "it would have to wait for this one then";
}

TEST(TokenPace, CountsAnswersThatRideInThePassItself) {
  SchedulerState state(paced(0.2005));
  ActiveSequence& rider = answering(state, 0);
  Plan plan = of_all(state);
  plan.items.emplace_back().rows = {rider.id, 10, 1, 0, 1};
  rider.in_pass = 1;
  EXPECT_EQ(TokenPace(state, plan, 0).rows(0, 500, 1, true), 197) << "and none comes after it";
}

TEST(TokenPace, LetsAnswersThatHaveWaitedGoFirst) {
  SchedulerState state(paced(0.2005));
  schedule::RingFormer former(state.limits);
  ActiveSequence& answer = answering(state, 0);
  ActiveSequence& prompt = begin(state, ask(1, 400, 5));
  for (const int64_t rows : {196, 1, 196, 1}) {
    const auto plan = former.form(state, {&prompt}, {}, 0);
    ASSERT_TRUE(plan);
    ASSERT_EQ(plan->items.size(), 1u);
    const auto& item = plan->items.front().rows;
    // The chunk before it has 196 rows, and each pair takes 1 ns.
    EXPECT_NEAR(static_cast<double>(item.count), static_cast<double>(rows), 1);
    (item.sequence == prompt.id ? prompt : answer).in_pass = 0;
    if (item.sequence == prompt.id) prompt.fed += item.count;
    answer.unfed = {7};
  }
}

TEST(TokenPace, DoesNothingWithoutTheObjective) {
  SchedulerLimits limits = paced(0.2005);
  limits.tbt_s.reset();
  SchedulerState state(limits);
  ActiveSequence& answer = answering(state, 0);
  let_wait(state, parallel::team_of_all(1));
  EXPECT_FALSE(answer.has_waited);
  answer.has_waited = true;
  EXPECT_TRUE(instances_of_waiting(state).empty());
}

/// Of answers on several instances, those wait that have one of the team's.
TEST(TokenPace, KeepsPromptsFromInstancesWhereAnswersHaveWaited) {
  SchedulerLimits limits = teams_of(3, 1000);
  limits.team_times = even_times(3);
  limits.tbt_s = 1;
  SchedulerState state(limits);
  ActiveSequence& both = begin(state, ask(0, 10, 20), {0, 1});
  read(state, both, 10);
  ActiveSequence& other = begin(state, ask(1, 10, 20), {2});
  read(state, other, 10, 2);
  let_wait(state, {{1}, 0, parallel::AttentionExchange::pass_kv, {}});
  EXPECT_TRUE(both.has_waited);
  EXPECT_FALSE(other.has_waited);
  EXPECT_EQ(instances_of_waiting(state), (std::set<int32_t>{0, 1}));
  ActiveSequence& first = begin(state, ask(2, 10, 20), {0});
  ActiveSequence& second = begin(state, ask(3, 10, 20), {2});
  schedule::Selection prompts = {&first, &second};
  let_waiting_first(state, prompts);
  EXPECT_EQ(prompts, schedule::Selection{&second});
}

}  // namespace
}  // namespace pecia::test
