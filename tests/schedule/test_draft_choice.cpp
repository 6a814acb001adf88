// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "lib/engine/schedule/draft_choice.hpp"

namespace pecia::schedule {
namespace {

using Counts = std::vector<int64_t>;

PassWork rows(double count) {
  return {.passes = 1, .rows = count};
}

/// 10 ms for a row, and this for each further one.
auto by_row(double further_s) {
  return [further_s](const PassWork& pass) { return 10e-3 + (pass.rows - 1) * further_s; };
}

TEST(DraftChoice, TriesWhatGivesMostTokensASecond) {
  const std::vector<DraftOffer> half{{16, 0.5, 0}};
  EXPECT_EQ(tokens_worth(half, rows(1), by_row(1e-3), false), Counts{2});
  EXPECT_EQ(tokens_worth(half, rows(1), by_row(0), false), Counts{16}) << "rows are free";
  EXPECT_EQ(tokens_worth(half, rows(1), by_row(10e-3), false), Counts{0});
  const std::vector<DraftOffer> few{{1, 0.5, 0}};
  EXPECT_EQ(tokens_worth(few, rows(1), by_row(1e-3), false), Counts{1});
  EXPECT_EQ(tokens_worth({}, rows(1), by_row(1e-3), false), Counts{});
}

TEST(DraftChoice, LikelierTokensComeFirst) {
  const std::vector<DraftOffer> offers{{16, 0.2, 0}, {16, 0.9, 0}, {0, 0.99, 0}};
  const Counts tried = tokens_worth(offers, rows(3), by_row(2e-3), false);
  EXPECT_EQ(tried[0], 0);
  EXPECT_GE(tried[1], 3);
  EXPECT_EQ(tried[2], 0) << "nothing was drafted";
}

TEST(DraftChoice, NoGainIsNoneWhenTimesMayBeWrong) {
  // 1.04 tokens in the time of one.
  const std::vector<DraftOffer> offer{{1, 0.04, 0}};
  EXPECT_EQ(tokens_worth(offer, rows(1), by_row(0), false), Counts{0});
  const std::vector<DraftOffer> better{{1, 0.06, 0}};
  EXPECT_EQ(tokens_worth(better, rows(1), by_row(0), false), Counts{1});
}

TEST(DraftChoice, AStepInTheTimesIsNotCrossedForLittle) {
  const auto step = [](const PassWork& pass) { return 10e-3 * std::ceil(pass.rows / 8); };
  const std::vector<DraftOffer> offers(4, {16, 0.8, 0});
  int64_t sum = 0;
  for (const int64_t tokens : tokens_worth(offers, rows(4), step, false)) sum += tokens;
  EXPECT_EQ(sum, 4) << "eight rows in all";
  const std::vector<DraftOffer> sure(4, {16, 0.99, 0});
  sum = 0;
  for (const int64_t tokens : tokens_worth(sure, rows(4), step, false)) sum += tokens;
  EXPECT_EQ((4 + sum) % 8, 0) << "the rows of a step are filled";
}

TEST(DraftChoice, LongContextsCost) {
  const auto seconds = [](const PassWork& pass) { return 10e-3 + 1e-6 * pass.pairs; };
  const std::vector<DraftOffer> offers{{4, 0.7, 100}, {4, 0.7, 100'000}};
  EXPECT_EQ(tokens_worth(offers, {.passes = 1, .rows = 2, .pairs = 100'100}, seconds, false),
            (Counts{4, 0}));
}

TEST(DraftChoice, RowsThatAreComputedAgainCost) {
  const std::vector<DraftOffer> offer{{16, 0.7, 0}};
  const int64_t once = tokens_worth(offer, rows(1), by_row(1e-3), false)[0];
  const int64_t again = tokens_worth(offer, rows(1), by_row(1e-3), true)[0];
  EXPECT_LT(again, once);
  EXPECT_GT(again, 0);
}

/// The best counts of two offers, by trying all.
double best_of_all(const std::vector<DraftOffer>& offers, double count,
                   const std::function<double(const PassWork&)>& seconds) {
  double best = 0;
  for (int64_t first = 0; first <= offers[0].tokens; ++first)
    for (int64_t second = 0; second <= offers[1].tokens; ++second) {
      double expected = count;
      for (int64_t i = 1; i <= first; ++i) expected += std::pow(offers[0].rate, i);
      for (int64_t i = 1; i <= second; ++i) expected += std::pow(offers[1].rate, i);
      best = std::max(best, expected / seconds(rows(count + first + second)));
    }
  return best;
}

TEST(DraftChoice, IsTheBestOfAllChoices) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> share(0, 1);
  for (int i = 0; i < 200; ++i) {
    const std::vector<DraftOffer> offers{
        {static_cast<int64_t>(6 * share(random)), share(random), 0},
        {static_cast<int64_t>(6 * share(random)), share(random), 0}};
    const double further_s = 5e-3 * share(random);
    const auto seconds = by_row(further_s);
    const Counts tried = tokens_worth(offers, rows(2), seconds, false);
    double expected = 2;
    for (int j = 0; j < 2; ++j)
      for (int64_t k = 1; k <= tried[j]; ++k) expected += std::pow(offers[j].rate, k);
    const double rate = expected / seconds(rows(2.0 + tried[0] + tried[1]));
    const double most = best_of_all(offers, 2, seconds), none = 2 / seconds(rows(2));
    if (most > 1.05 * none)
      EXPECT_NEAR(rate, most, 1e-9 * most) << i;
    else
      EXPECT_EQ(tried, (Counts{0, 0})) << i;
  }
}

}  // namespace
}  // namespace pecia::schedule
