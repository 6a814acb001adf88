// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "lib/base/core/error.hpp"
#include "lib/base/core/random.hpp"
#include "lib/simulation/tune/search.hpp"
#include "tests/tune/made_up.hpp"

namespace pecia::tune {
namespace {

/// Losses that never fall with drop and times that never grow, in random steps, some of which are 0.
/// Times alone depend on micro-partitions, and nothing dropped is the same with every deal.
Costs random_costs(uint64_t draw) {
  const auto climb = [draw](const Setting& setting, uint64_t which) {
    double sum = 0;
    for (int step = 0; step < setting.drop * 50 + 0.5; ++step) {
      const int micro = which == 1 ? setting.micros.front() : 0;
      const int deal = setting.drop > 0 ? static_cast<int>(setting.deal) : 0;
      const auto branch = static_cast<uint64_t>((setting.levels * 4 + deal) * 16 + micro);
      const uint64_t index = which + 2 * (branch * 64 + step);
      const double random = uniform(draw, index);
      sum += random < 0.4 ? 0 : random;
    }
    return sum;
  };
  return {[climb](const Setting& setting) { return climb(setting, 0) / 100; },
          [climb](const Setting& setting) { return 50 - climb(setting, 1); },
          [climb](const Setting& setting) { return 1 - climb(setting, 0) / 50; }};
}

TEST(Search, FindsWhatLookingAtAllFinds) {
  const std::vector<Deal> deals{Deal::even, Deal::spread, Deal::mass};
  const Candidates candidates{fine_drops(), {2}, {1, 4}, deals};
  int met = 0, missed = 0;
  for (uint64_t draw = 0; draw < 100; ++draw) {
    const Costs costs = random_costs(draw);
    std::vector<Found> all;
    for (const int levels : candidates.levels)
      for (const int micro : candidates.micros)
        for (const Deal deal : deals)
          for (const double drop : candidates.drops)
            if (drop > 0 || deal == Deal::even)
              all.push_back(costs.of({drop, levels, {micro}, deal}));
    for (const Goal& goal : {Goal{0.0, {}}, Goal{0.1, {}}, Goal{1.0, {}}, Goal{{}, 20.0},
                             Goal{{}, 30.0}, Goal{{}, 49.0}, Goal{{}, 60.0}, Goal{1.0, {}, 0.9},
                             Goal{{}, 40.0, 0.9}, Goal{{}, 49.0, 1.0}}) {
      const auto found = search(goal, candidates, costs);
      EXPECT_EQ(found, best_of(goal, all)) << "draw " << draw;
      ++(found ? met : missed);
    }
  }
  EXPECT_GT(met, 100);
  EXPECT_GT(missed, 100);
}

TEST(Search, StopsABranchAtTheFirstThatBreaksTheGoal) {
  int looks = 0;
  const Costs costs{[&](const Setting& setting) { return ++looks, setting.drop; },
                    [](const Setting& setting) { return 1 - setting.drop; }};
  const auto found = search({0.1, {}}, {fine_drops(), {2}, {1}}, costs);
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(found->setting.drop, 0.1);
  EXPECT_EQ(looks, 7);  // 0 to 0.1, and 0.12
}

TEST(Search, TakesLossesThatTextsDoNotShowForNone) {
  const Costs costs{[](const Setting& setting) { return setting.drop / 100; },
                    [](const Setting& setting) { return 1 - setting.drop; }};
  const auto found = search({0.0, {}}, {fine_drops(), {2}, {1}}, costs);
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(found->setting.drop, 0.2);
}

TEST(Search, LooksAtNoDropWhereToDropAtAllTakesTime) {
  const Costs costs{[](const Setting& setting) { return setting.drop; },
                    [](const Setting& setting) { return setting.drop > 0 ? 3 - setting.drop : 1; }};
  const auto found = search({{}, 1.5}, {fine_drops(), {2}, {1}}, costs);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->setting.drop, 0);
}

TEST(Search, TakesTheFastestNumberOfParts) {
  const Costs costs{
      [](const Setting& setting) { return setting.drop; },
      [](const Setting& setting) { return std::abs(setting.micros.front() - 4) + 1.0; }};
  for (const Goal& goal : {Goal{0.1, {}}, Goal{{}, 9.0}}) {
    const auto found = search(goal, {fine_drops(), {2}, {1, 2, 4, 8}}, costs);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->setting.micros, parallel::Micros{4});
  }
}

TEST(Search, ChoosesTheDealThatLosesLeast) {
  const auto lost = [](const Setting& setting) {
    return setting.drop * (setting.deal == Deal::mass ? 0.01 : 0.1);
  };
  const Costs costs{lost, [](const Setting& setting) { return 1 - setting.drop; }};
  const Candidates candidates{fine_drops(), {2}, {1}, {Deal::even, Deal::mass}};
  for (const Goal& goal : {Goal{0.005, {}}, Goal{{}, 0.6}}) {
    const auto found = search(goal, candidates, costs);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->setting.deal, Deal::mass);
  }
  EXPECT_EQ(search({{}, 1.0}, candidates, costs)->setting.deal, Deal::even) << "nothing is dropped";
}

TEST(Search, KeepsToGivenParts) {
  const Costs costs{[](const Setting& setting) { return setting.drop; },
                    [](const Setting& setting) { return 1.0 + setting.micros.front(); }};
  const Candidates candidates{fine_drops(), {3}, {1, 2}, {Deal::even}, parallel::Micros{8, 2}};
  EXPECT_EQ(search({0.1, {}}, candidates, costs)->setting.micros, (parallel::Micros{8, 2}));
  EXPECT_EQ(nearest({0.1, {}}, candidates, costs).setting.micros, (parallel::Micros{8, 2}));
}

/// All settings with other numbers of parts for each level.
std::vector<Setting> all_settings(const Candidates& candidates) {
  std::vector<Setting> all;
  for (const int levels : candidates.levels)
    for (const Deal deal : candidates.deals)
      for (const double drop : candidates.drops)
        for (const int near : candidates.micros)
          for (const int far : candidates.micros) {
            if (drop == 0 && deal != Deal::even) continue;
            if (levels == 2 && far != near) continue;
            all.push_back({drop, levels, {near, far}, deal});
          }
  return all;
}

TEST(Search, ComesWithinAHundredthOfTheOracleThatLooksAtAll) {
  Tuned tuned = made_up_with_deals();
  fit(tuned);
  const Candidates candidates = tuned.candidates();
  ASSERT_EQ(candidates.deals.size(), 2U);
  const Costs costs = tuned.costs(4000);
  std::vector<Found> all;
  for (const Setting& setting : all_settings(candidates)) all.push_back(costs.of(setting));
  int by_mass = 0;
  for (const Goal& goal : {Goal{0.0, {}}, Goal{0.01, {}}, Goal{0.03, {}}, Goal{{}, 7.0},
                           Goal{{}, 6.5}, Goal{0.05, {}, 0.7}}) {
    const auto found = search(goal, candidates, costs), best = best_of(goal, all);
    ASSERT_EQ(found.has_value(), best.has_value());
    if (!found) continue;
    EXPECT_TRUE(meets(goal, *found));
    EXPECT_LE(goal.loss ? found->ttft_s / best->ttft_s - 1 : found->loss - best->loss, 0.01);
    by_mass += found->setting.deal == Deal::mass;
  }
  EXPECT_GT(by_mass, 2);
}

TEST(Search, TakesOneGoal) {
  const Costs costs = random_costs(0);
  EXPECT_THROW(search({}, {fine_drops(), {2}, {1}}, costs), InvalidArgument);
  EXPECT_THROW(search({1.0, 1.0}, {fine_drops(), {2}, {1}}, costs), InvalidArgument);
}

TEST(Nearest, IsTheFastestOrTheOneThatLosesLeast) {
  const Costs costs{[](const Setting& setting) { return 1 + setting.drop; },
                    [](const Setting& setting) { return 5 - setting.drop; }};
  const Candidates candidates{fine_drops(), {2, 3}, {1, 2}};
  EXPECT_EQ(nearest({0.0, {}}, candidates, costs).setting, (Setting{0, 2}));
  EXPECT_EQ(nearest({{}, 1.0}, candidates, costs).setting, (Setting{0.94, 2}));
}

TEST(FineDrops, StayWithinWhatJobsTake) {
  EXPECT_EQ(fine_drops().front(), 0);
  EXPECT_DOUBLE_EQ(fine_drops()[17], 0.34);
  EXPECT_LE(fine_drops().back(), 0.95);
}

}  // namespace
}  // namespace pecia::tune
