// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/core/error.hpp"
#include "lib/core/random.hpp"
#include "lib/tune/tuned.hpp"
#include "tests/tune/made_up.hpp"

namespace pecia::tune {
namespace {

TEST(Fit, FindsTheTimesAndLossesOfSamplesThatItHasNotSeen) {
  Tuned tuned = made_up();
  fit(tuned);
  EXPECT_NEAR(tuned.time.constant_s, 0.5, 1e-4);
  EXPECT_NEAR(tuned.time.s_per_token, 1e-3, 1e-7);
  EXPECT_NEAR(tuned.time.s_per_pair, 2e-7, 1e-11);
  EXPECT_EQ(tuned.time_error.samples, 8);
  EXPECT_GT(tuned.time_error.accuracy, 0.9999);
  EXPECT_LT(tuned.loss_error.mean_absolute, 1e-4);
  EXPECT_GT(tuned.loss_error.accuracy, 0.98);
  EXPECT_GT(tuned.loss_error.large_samples, 0);
}

TEST(Fit, HoldsTheSameSamplesOutEachTime) {
  Tuned a = made_up(), b = made_up();
  fit(a), fit(b);
  int held = 0;
  for (size_t i = 0; i < a.samples.size(); ++i) {
    EXPECT_EQ(a.samples[i].held_out, b.samples[i].held_out);
    held += a.samples[i].held_out ? 1 : 0;
  }
  EXPECT_EQ(held, static_cast<int>(a.samples.size() / 5));
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.time, b.time);
}

TEST(Fit, IsNotMisledByWhatItHoldsOut) {
  Tuned plain = made_up();
  fit(plain);
  Tuned wrong = made_up();
  const auto held = held_out(wrong.samples.size());
  for (size_t i = 0; i < held.size(); ++i)
    if (held[i]) wrong.samples[i].loss = 9, wrong.samples[i].ttft_s = 1000;
  fit(wrong);
  EXPECT_EQ(wrong.loss, plain.loss);
  EXPECT_EQ(wrong.time, plain.time);
  EXPECT_GT(wrong.loss_error.mean_absolute, 1);
}

TEST(Fit, IsMonotoneWhateverTheSamplesSay) {
  for (uint64_t draw = 0; draw < 20; ++draw) {
    Tuned tuned = made_up();
    uint64_t index = 0;
    for (Sample& sample : tuned.samples) {
      sample.loss = uniform(draw, index++) - 0.5;
      sample.ttft_s = 0.1 + uniform(draw, index++);
    }
    fit(tuned);
    for (const int64_t tokens : {100, 1000, 4000, 100'000})
      for (const LevelChoice& choice : tuned.levels) {
        Found before{{}, -1, HUGE_VAL};
        for (const double drop : fine_drops()) {
          const Found found = tuned.costs(tokens).of({drop, choice.count()});
          EXPECT_GE(found.loss, before.loss) << tokens << " tokens, drop " << drop;
          EXPECT_LE(found.ttft_s, before.ttft_s) << tokens << " tokens, drop " << drop;
          before = found;
        }
      }
  }
}

TEST(LossModel, KeepsToTheLengthsItHasSeen) {
  Tuned tuned = made_up();
  fit(tuned);
  const auto& shares = tuned.levels[0].shares;
  EXPECT_EQ(tuned.loss.loss(10, 0.5, shares), tuned.loss.loss(1000, 0.5, shares));
  EXPECT_EQ(tuned.loss.loss(1'000'000, 0.5, shares), tuned.loss.loss(8000, 0.5, shares));
  EXPECT_GT(tuned.loss.loss(1000, 0.5, shares), tuned.loss.loss(8000, 0.5, shares));
}

TEST(LossModel, LosesNothingWithoutDropUnlessPairsAreRepeated) {
  Tuned tuned = made_up();
  fit(tuned);
  EXPECT_EQ(tuned.loss.loss(2000, 0, tuned.levels[0].shares), 0);
  tuned.loss.coefficients.back() = {0.1, 0.1};
  EXPECT_NEAR(tuned.loss.loss(2000, 0, {0.25, 1}), 0.025, 1e-12);  // nested
}

TEST(Candidates, GoNoFurtherThanWhatWasMeasured) {
  EXPECT_DOUBLE_EQ(made_up().candidates().drops.back(), 0.9);
  EXPECT_EQ(made_up().candidates().levels, (std::vector<int>{2, 3}));
}

TEST(Fit, RefusesTooFewSamples) {
  Tuned tuned = made_up();
  tuned.samples.resize(fewest_samples - 1);
  EXPECT_THROW(fit(tuned), InvalidArgument);
}

TEST(Choose, SaysForEachBucketWhatTheMeasuredOptimumIs) {
  Tuned tuned = made_up();
  fit(tuned);
  ASSERT_EQ(tuned.chosen.size(), 4U * 8);  // 512 to 1023, to 2047, to 4095, and from 4096 tokens on
  for (const Chosen& chosen : tuned.chosen) {
    if (!chosen.oracle || !chosen.oracle->models) continue;
    EXPECT_TRUE(meets(chosen.goal, chosen.oracle->best));
    EXPECT_TRUE(!chosen.oracle->holds || chosen.oracle->gap >= 0);
  }
  const Chosen& none = tuned.chosen.front();
  EXPECT_EQ(none.goal, (Goal{0.0, {}}));
  EXPECT_TRUE(none.met);
  EXPECT_LE(none.found.loss, no_loss);
  ASSERT_TRUE(none.oracle);
  EXPECT_EQ(none.oracle->best.setting.drop, 0);
}

}  // namespace
}  // namespace pecia::tune
