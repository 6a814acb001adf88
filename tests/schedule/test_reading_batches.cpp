// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "lib/engine/schedule/reading_batches.hpp"
#include "tests/schedule/fake_teams.hpp"
#include "tests/schedule/random_workload.hpp"

namespace pecia::test {
namespace {

using schedule::BatchLimits;
using schedule::PromptToRead;
using schedule::read_in_batches;
using schedule::ReadingBatch;
using schedule::ReadingGoal;
using schedule::TeamTimes;

/// Reading a token takes a second; messages of a team of d instances add (d − 1) × `message_s`.
TeamTimes times_of(int degrees, double message_s) {
  const schedule::RateFit fit(schedule::PassRates{1e-3, 1, 1e-12});
  return {{fit, fit}, {.message_s = message_s, .bytes_per_second = 1e12, .layers = 1}, degrees};
}

double cost_of(const std::vector<ReadingBatch>& batches, const std::vector<PromptToRead>& prompts,
               const TeamTimes& times, ReadingGoal goal, const BatchLimits& limits) {
  double cost = 0;
  for (const ReadingBatch& batch : batches) {
    std::vector<PromptToRead> of;
    double weight = 0;
    for (const size_t prompt : batch.prompts) {
      of.push_back(prompts[prompt]);
      weight += prompts[prompt].weight;
    }
    const auto degree = static_cast<int>(batch.instances.size());
    const double s = reading_s(times, of, degree, limits.rows_per_instance);
    EXPECT_NEAR(batch.seconds, s, 1e-9 * s);
    cost += s * (goal == ReadingGoal::mean ? weight : degree);
  }
  return cost;
}

/// The least cost of all ways to cut the prompts and the instances, each in its order.
double least_of_all(const std::vector<PromptToRead>& sorted, const std::vector<int64_t>& free,
                    const TeamTimes& times, ReadingGoal goal, const BatchLimits& limits) {
  std::function<double(size_t, size_t)> rest = [&](size_t i, size_t k) -> double {
    if (i == sorted.size()) return 0;
    double least = std::numeric_limits<double>::infinity();
    for (size_t j = i + 1; j <= sorted.size(); ++j)
      for (size_t first = k; first < free.size(); ++first)
        for (size_t l = first + 1; l <= free.size(); ++l) {
          const auto degree = static_cast<int>(l - first);
          if (degree < limits.least || degree > limits.most) continue;
          std::vector<PromptToRead> of(sorted.begin() + i, sorted.begin() + j);
          int64_t slots = 0, room = 0;
          double weight = 0;
          for (const PromptToRead& prompt : of) slots += prompt.slots, weight += prompt.weight;
          for (size_t at = first; at < l; ++at) room += free[at];
          if (slots > room) continue;
          const double s = reading_s(times, of, degree, limits.rows_per_instance);
          least = std::min(least, s * (goal == ReadingGoal::mean ? weight : degree) + rest(j, l));
        }
    return least;
  };
  return rest(0, 0);
}

TEST(ReadingBatches, CostTheLeastOfAllWaysToCut) {
  constexpr uint64_t seed = 20261129;
  RecordProperty("seed", std::to_string(seed));
  int solved = 0, left_out = 0, together = 0, wide = 0;
  for (uint64_t attempt = 0; attempt < 400; ++attempt) {
    SCOPED_TRACE(fmt::format("attempt {}", attempt));
    Draw draw(seed + attempt);
    const auto instances = static_cast<size_t>(draw(1, 5));
    std::vector<PromptToRead> prompts(static_cast<size_t>(draw(1, 5)));
    for (PromptToRead& prompt : prompts) {
      prompt.tokens = draw.one_in(2) ? draw(1, 50) : draw(50, 5000);
      prompt.slots = prompt.tokens + draw(0, 50);
      prompt.weight = draw.one_in(2) ? 1 : 1.0 / static_cast<double>(prompt.tokens);
    }
    std::vector<int64_t> free(instances);
    for (int64_t& slots : free) slots = draw(0, 6000);
    const BatchLimits limits{.rows_per_instance = draw(10, 1000),
                             .least = draw.one_in(4) ? 2 : 1,
                             .most = draw.one_in(4) ? 2 : 1 << 20};
    const TeamTimes times = times_of(static_cast<int>(instances), draw.of<double>({0.1, 20, 300}));
    const ReadingGoal goal = draw.one_in(2) ? ReadingGoal::mean : ReadingGoal::makespan;
    const auto batches = read_in_batches(times, prompts, free, goal, limits);

    std::vector<size_t> dealt, used;
    for (const ReadingBatch& batch : batches) {
      dealt.insert(dealt.end(), batch.prompts.begin(), batch.prompts.end());
      used.insert(used.end(), batch.instances.begin(), batch.instances.end());
      together += batch.prompts.size() > 1, wide += batch.instances.size() > 1;
    }
    std::ranges::sort(dealt), std::ranges::sort(used);
    EXPECT_EQ(std::ranges::adjacent_find(used), used.end()) << "an instance twice";
    // The first of them, as they came, as far as there are places.
    std::vector<size_t> first(dealt.size());
    std::iota(first.begin(), first.end(), size_t{0});
    EXPECT_EQ(dealt, first);

    const auto sorted_of = [&](size_t count) {
      std::vector<PromptToRead> sorted(prompts.begin(), prompts.begin() + count);
      std::ranges::stable_sort(sorted, std::ranges::greater(), &PromptToRead::tokens);
      return sorted;
    };
    std::ranges::stable_sort(free, std::ranges::greater());
    if (dealt.size() < prompts.size()) {
      ++left_out;
      EXPECT_EQ(least_of_all(sorted_of(dealt.size() + 1), free, times, goal, limits),
                std::numeric_limits<double>::infinity());
    }
    if (dealt.empty()) continue;
    const double least = least_of_all(sorted_of(dealt.size()), free, times, goal, limits);
    EXPECT_NEAR(cost_of(batches, prompts, times, goal, limits), least, 1e-9 * least);
    ++solved;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(solved, 250);
  EXPECT_GT(left_out, 50);
  EXPECT_GT(together, 50);
  EXPECT_GT(wide, 50);
}

TEST(ReadingBatches, GiveALongPromptTheInstancesThatShortOnesDoNotNeed) {
  const std::vector<PromptToRead> prompts{{10, 10}, {4000, 4000}, {12, 12}};
  const auto batches = read_in_batches(times_of(4, 1), prompts, {5000, 5000, 5000, 5000},
                                       ReadingGoal::mean, {.rows_per_instance = 8192});
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].prompts, (std::vector<size_t>{1}));
  EXPECT_EQ(batches[0].instances.size(), 3u);
  EXPECT_EQ(batches[1].prompts, (std::vector<size_t>{2, 0}));
  EXPECT_EQ(batches[1].instances.size(), 1u);
}

TEST(ReadingBatches, OfAMakespanCostTheFewestSecondsOfInstances) {
  // Each instance more costs a message of 500 s.
  const auto batches = read_in_batches(times_of(4, 500), {{4000, 4000}}, {5000, 5000, 5000, 5000},
                                       ReadingGoal::makespan, {.rows_per_instance = 8192});
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].instances.size(), 1u);
}

TEST(ReadingBatches, OfManyInstancesHaveAllPromptsThatFit) {
  constexpr int instances = 100;
  Draw draw(5);
  std::vector<PromptToRead> prompts;
  for (int i = 0; i < 600; ++i) {
    const int64_t tokens = i % 100 == 7 ? draw(20000, 60000) : draw(1, 500);
    prompts.push_back({tokens, tokens + 10, 1.0 / static_cast<double>(tokens)});
  }
  const std::vector<int64_t> free(instances, 5000);
  const auto batches = read_in_batches(times_of(instances, 1), prompts, free, ReadingGoal::mean,
                                       {.rows_per_instance = 1000});
  std::vector<int64_t> times_used(instances), times_dealt(prompts.size());
  for (const ReadingBatch& batch : batches) {
    int64_t slots = 0, room = 0;
    for (const size_t instance : batch.instances) room += free[instance], ++times_used[instance];
    for (const size_t prompt : batch.prompts) slots += prompts[prompt].slots, ++times_dealt[prompt];
    EXPECT_LE(slots, room);
  }
  EXPECT_LE(std::ranges::max(times_used), 1);
  EXPECT_EQ(std::ranges::min(times_dealt), 1);
  EXPECT_EQ(std::ranges::max(times_dealt), 1);
}

}  // namespace
}  // namespace pecia::test
