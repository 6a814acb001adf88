// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lib/engine/schedule/pass_times.hpp"
#include "lib/work/resources/sequences_at_once.hpp"

namespace pecia::schedule {
namespace {

constexpr PassRates truth{2e-2, 1e-3, 4e-8};

double true_seconds(const PassWork& work) {
  return work.passes * truth.pass_s + work.rows * truth.row_s + work.pairs * truth.pair_s;
}

TEST(WorkOf, CountsEachNewTokenAndWhatItSees) {
  const PassWork work = work_of(10, 3, 2);
  EXPECT_EQ(work.passes, 2);
  EXPECT_EQ(work.rows, 3);
  EXPECT_EQ(work.pairs, 11 + 12 + 13);
}

TEST(RateFit, IsTheEstimateBeforeAnyPass) {
  const RateFit fit({1, 2, 3});
  EXPECT_FALSE(fit.measured());
  EXPECT_EQ(fit.seconds({1, 10, 100}), 1 + 20 + 300);
}

/// One length only tells one number: what it says of others keeps the estimate's proportions.
TEST(RateFit, ScalesWhatPassesOfOneLengthCannotTellApart) {
  RateFit fit({1e-2, 1e-3, 1e-8});
  const PassWork one = work_of(0, 512, 512);
  for (int pass = 0; pass < 10; ++pass) fit.add(one, 3 * fit.seconds(one));
  RateFit scaled({1e-2, 1e-3, 1e-8});
  const double before = scaled.seconds(one);
  for (int pass = 0; pass < 10; ++pass) scaled.add(one, 3 * before);
  EXPECT_NEAR(scaled.seconds(one), 3 * before, 0.01 * 3 * before);
  const PassWork half = work_of(0, 256, 256);
  EXPECT_NEAR(scaled.seconds(half) / scaled.seconds(one),
              RateFit({1e-2, 1e-3, 1e-8}).seconds(half) / before, 0.02);
}

/// The chunks of one long prompt: attention grows, and the fit foretells passes three times
/// further.
TEST(RateFit, FindsTheGrowthOfAttention) {
  RateFit fit({1e-3, 1e-2, 1e-7});  // wrong by 20, 10 and 2.5
  for (int chunk = 0; chunk < 20; ++chunk) {
    const PassWork work = work_of(chunk * 1024.0, 1024, 1024);
    fit.add(work, true_seconds(work));
  }
  const PassWork later = work_of(60 * 1024.0, 1024, 1024);
  EXPECT_NEAR(fit.seconds(later), true_seconds(later), 0.05 * true_seconds(later));
}

TEST(RateFit, FollowsASlowerMachineWithinSomePasses) {
  RateFit fit(truth);
  const PassWork work = work_of(100, 64, 64);
  for (int pass = 0; pass < 50; ++pass) fit.add(work, true_seconds(work));
  for (int pass = 0; pass < 60; ++pass) fit.add(work, 2 * true_seconds(work));
  EXPECT_NEAR(fit.seconds(work), 2 * true_seconds(work), 0.1 * true_seconds(work));
}

TEST(RateFit, HasNoNegativeRate) {
  RateFit fit({1, 1, 1});
  for (int pass = 0; pass < 30; ++pass) {  // longer passes that take less time
    fit.add({1, 100, 100}, 2);
    fit.add({1, 10, 10}, 4);
  }
  for (const double rate : {fit.rates().pass_s, fit.rates().row_s, fit.rates().pair_s}) {
    EXPECT_GE(rate, 0);
    EXPECT_TRUE(std::isfinite(rate));
  }
}

TEST(PassTimes, SharesTheTimeOfAMixedPass) {
  PassTimes times{RateFit({1e-3, 1e-3, 1e-9}), RateFit({1e-3, 1e-3, 1e-9})};
  const PassWork prompts = work_of(0, 100, 100), answers{1, 10, 1000};
  const double expected = times.prefill.seconds(prompts) + times.decode.seconds(answers);
  for (int pass = 0; pass < 20; ++pass) times.add(prompts, answers, 2 * expected);
  EXPECT_NEAR(times.prefill.seconds(prompts) + times.decode.seconds(answers), 2 * expected,
              0.02 * expected);
  times.add({}, answers, 1e-2);
  EXPECT_TRUE(times.decode.measured());
}

TEST(SequencesAtOnce, AreTheFewestWithinTwoPercent) {
  EXPECT_EQ(resources::sequences_at_once({8000, 256}, 32, 64, 64), 32) << "the header's example";
  const auto cost = [](double waves) { return 8000 + 256 * 32 * waves / 64; };
  EXPECT_LE(cost(2), 1.02 * cost(1));
  EXPECT_GT(cost(3), 1.02 * cost(1));
}

/// Of 62 answers 50 at once would leave a second wave of 12, as long as one of all.
TEST(SequencesAtOnce, LeaveNoShortLastWave) {
  EXPECT_EQ(resources::sequences_at_once({298, 48}, 32, 62, 62), 62);
  for (int64_t answers = 1; answers < 200; ++answers) {
    const int64_t n = resources::sequences_at_once({2000, 100}, 32, answers, answers);
    const int64_t waves = (answers + n - 1) / n;
    EXPECT_EQ((answers + waves - 1) / waves, n) << answers << ": no fewer would do for the waves";
  }
}

TEST(SequencesAtOnce, AreFewForBooksAndManyForChat) {
  EXPECT_LE(resources::sequences_at_once({200000, 256}, 32, 1000, 256), 3);
  EXPECT_GE(resources::sequences_at_once({300, 256}, 32, 10000, 256), 200);
  EXPECT_EQ(resources::sequences_at_once({300, 0}, 32, 1000, 256), 1)
      << "prompts that are only read";
  EXPECT_EQ(resources::sequences_at_once({0, 0}, 32, 0, 7), 1) << "nothing to do";
  EXPECT_EQ(resources::sequences_at_once({1000, 100}, 32, 9, 1), 1);
}

}  // namespace
}  // namespace pecia::schedule
