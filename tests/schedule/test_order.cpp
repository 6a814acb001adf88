// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/schedule/order.hpp"
#include "tests/schedule/fake_teams.hpp"
#include "tests/schedule/small_state.hpp"

namespace pecia::test {
namespace {

using schedule::ActiveSequence;
using schedule::Order;
using schedule::SchedulerState;

std::vector<int64_t> ids(const schedule::Selection& prompts) {
  std::vector<int64_t> ids;
  for (const ActiveSequence* prompt : prompts) ids.push_back(prompt->id);
  return ids;
}

schedule::SchedulerLimits by_time() {
  schedule::SchedulerLimits limits = teams_of(1, 1000);
  limits.team_times = even_times(1);
  limits.objective = job::Objective::ttft;
  return limits;
}

TEST(Order, KeepsTheOrderOfRequestsWhereItIsNotByTime) {
  SchedulerState state(small_limits());
  const Order order(state.limits);
  EXPECT_FALSE(order.patience_s(state, ask(0, 100, 1)));
  for (const int64_t tokens : {100, 10, 50}) {
    const auto request = state_of(ask(tokens, tokens, 1));
    EXPECT_EQ(order.place(state, *request), state.waiting.size());
    state.waiting.push_back(request);
    begin(state, ask(tokens, tokens, 1));
  }
  EXPECT_EQ(ids(order.prompts(state)), (std::vector<int64_t>{0, 1, 2}));
}

TEST(Order, PutsAShortPromptBeforeALongOneThatCameShortlyBefore) {
  SchedulerState state(by_time());
  const Order order(state.limits);
  const auto waits = [&](int64_t tokens, double since) {
    const auto request = state_of(ask(tokens, tokens, 1));
    request->ready_s = since;
    request->patience_s = order.patience_s(state, request->request);
    return request;
  };
  // Reading 100 tokens takes 0.107 s on one instance, so they are due 2.67 s after they came.
  const auto first = waits(100, 0);
  EXPECT_NEAR(first->due_s(), 25 * 0.107, 0.01);
  state.waiting.push_back(first);
  EXPECT_EQ(order.place(state, *waits(10, 1)), 0u);
  EXPECT_EQ(order.place(state, *waits(10, 3)), 1u);
  EXPECT_EQ(order.place(state, *waits(100, 0)), 1u) << "of equal ones the first";
}

/// The whole ring reads it, half of the rows each.
TEST(Order, CountsThePatienceOfARing) {
  schedule::SchedulerLimits limits = by_time();
  limits.ring_size = 2;
  limits.elastic = false;
  limits.team_times = even_times(2, 0);
  limits.max_batch_tokens = 100;
  SchedulerState state(limits);
  EXPECT_NEAR(*Order(limits).patience_s(state, ask(0, 100, 1)), 25 * 0.051, 0.01);
}

TEST(Order, NamesThePromptsThatCanBeReadOn) {
  SchedulerState state(by_time());
  const Order order(state.limits);
  ActiveSequence& late = begin(state, ask(0, 20, 1));
  ActiveSequence& soon = begin(state, ask(1, 20, 1));
  ActiveSequence& in_pass = begin(state, ask(2, 20, 1));
  ActiveSequence& was_read = begin(state, ask(3, 20, 1));
  late.origin->patience_s = 2, soon.origin->patience_s = 1;
  in_pass.in_pass = 5;
  read(state, was_read, 20);
  EXPECT_EQ(ids(order.prompts(state)), (std::vector<int64_t>{soon.id, late.id}));
}

TEST(Order, BeginsABranchOfAPrefixThatNobodyUsesFirst) {
  const Order order(small_limits());
  const auto fork = state_of(fork_of(10, {1, 1}));
  EXPECT_TRUE(order.comes_first(*fork));
  fork->active_branches = 1;
  EXPECT_FALSE(order.comes_first(*fork));
}

}  // namespace
}  // namespace pecia::test
