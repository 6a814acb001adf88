// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "apps/bench/schedule/oracle.hpp"

namespace pecia::test {
namespace {

using bench::Readers;
using schedule::SimulatedRequest;

/// A row takes a second, a pass ten seconds more, and nothing else costs anything.
schedule::TeamTimes times_of(int degrees) {
  const schedule::RateFit fit(schedule::PassRates{10, 1, 1e-15});
  return {{fit, fit}, {.bytes_per_second = 1e15, .layers = 1}, degrees};
}

SimulatedRequest ask(int64_t tokens, double arrival_s = 0, int64_t answer = 1) {
  return {.turns = {{tokens, answer}}, .arrival_s = arrival_s};
}

constexpr double near = 1e-3;

TEST(Oracle, ReadsTheShortPromptFirst) {
  const schedule::TeamTimes times = times_of(1);
  const Readers readers{times, 1, 1000};
  // Together: 2 × 210 s. Short first: 20 s, then 20 + 210. Long first: 210, then 230.
  EXPECT_NEAR(best_mean_ttft_s(readers, {ask(200), ask(10)}), (20 + 230) / 2.0, near);
  // Two short ones share a pass: 30 s each, not 20 and 40.
  EXPECT_NEAR(best_mean_ttft_s(readers, {ask(10), ask(10)}), 30, near);
}

TEST(Oracle, WaitsForAShortPromptThatComesSoon) {
  const schedule::TeamTimes times = times_of(1);
  const Readers readers{times, 1, 1000};
  // At once: 210, and 210 + 20 − 1. After it: 1 + 20 + 210, and 20.
  EXPECT_NEAR(best_mean_ttft_s(readers, {ask(200), ask(10, 1)}), (231 + 20) / 2.0, near);
}

TEST(Oracle, SharesInstances) {
  const schedule::TeamTimes times = times_of(3);
  const Readers readers{times, 3, 1000};
  EXPECT_NEAR(best_mean_ttft_s(readers, {ask(300)}), 110, near);
  // Side by side: two read one, 160 s, one the other, 40 s. One after the other: 20, and 20 + 110.
  EXPECT_NEAR(best_mean_ttft_s(readers, {ask(300), ask(30)}), (20 + 130) / 2.0, near);
}

TEST(Oracle, IsNoBetterThanItsBounds) {
  const schedule::TeamTimes times = times_of(2);
  const Readers readers{times, 2, 1000};
  // Work alone, on two: 5 s, 5 + 50 s, of prompts that are 10 + 5 and 10 + 50 by themselves.
  EXPECT_NEAR(least_mean_ttft_s(readers, {ask(100), ask(10)}), (15 + 60) / 2.0, near);
  // Ten of 100: 50, 100, … 500.
  EXPECT_NEAR(least_mean_ttft_s(readers, std::vector<SimulatedRequest>(10, ask(100))), 275, near);
  // The second comes when 10 s of the first are done, and goes first.
  EXPECT_NEAR(least_mean_ttft_s(readers, {ask(1000), ask(200, 10), ask(200, 10)}),
              (700 + 100 + 200) / 3.0, near);
  const std::vector<SimulatedRequest> mixed{ask(70), ask(300, 20), ask(20, 25), ask(500, 40)};
  EXPECT_LT(least_mean_ttft_s(readers, mixed), best_mean_ttft_s(readers, mixed));
}

TEST(Oracle, BoundsABatch) {
  const schedule::TeamTimes times = times_of(2);
  const Readers readers{times, 2, 1000};
  // 100 rows of the prompt, and nine of the answer, each in a pass.
  EXPECT_NEAR(least_makespan_s(readers, {ask(100, 0, 10)}), 10 + 50 + 9 * 11, near);
  EXPECT_NEAR(least_makespan_s(readers, std::vector<SimulatedRequest>(100, ask(100, 0, 10))),
              100 * 109 / 2.0, near);
}

}  // namespace
}  // namespace pecia::test
