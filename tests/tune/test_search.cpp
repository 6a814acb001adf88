// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "lib/base/core/error.hpp"
#include "lib/base/core/random.hpp"
#include "lib/simulation/tune/search.hpp"

namespace pecia::tune {
namespace {

/// Losses that never fall with drop and times that never grow, in random steps, some of which are 0.
Costs random_costs(uint64_t draw) {
  const auto climb = [draw](const Setting& setting, uint64_t which) {
    double sum = 0;
    for (int step = 0; step < setting.drop * 50 + 0.5; ++step) {
      const auto branch = static_cast<uint64_t>(setting.levels * 16 + setting.micro);
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
  const Candidates candidates{fine_drops(), {2, 3, 4}, {1, 4}};
  int met = 0, missed = 0;
  for (uint64_t draw = 0; draw < 100; ++draw) {
    const Costs costs = random_costs(draw);
    std::vector<Found> all;
    for (const int levels : candidates.levels)
      for (const int micro : candidates.micros)
        for (const double drop : candidates.drops) all.push_back(costs.of({drop, levels, micro}));
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
  const Costs costs{[](const Setting& setting) { return setting.drop; },
                    [](const Setting& setting) { return std::abs(setting.micro - 4) + 1.0; }};
  for (const Goal& goal : {Goal{0.1, {}}, Goal{{}, 9.0}}) {
    const auto found = search(goal, {fine_drops(), {2}, {1, 2, 4, 8}}, costs);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->setting.micro, 4);
  }
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
