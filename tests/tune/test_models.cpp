// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "lib/base/core/random.hpp"
#include "lib/simulation/tune/tuned.hpp"
#include "tests/tune/made_up.hpp"

namespace pecia::tune {
namespace {

TEST(Fit, FindsTheTimesAndLossesOfPromptsThatItHasNotSeen) {
  Tuned tuned = made_up();
  fit(tuned);
  const TimeModel wanted = made_up_times();
  EXPECT_NEAR(tuned.time.s_per_token, wanted.s_per_token, 1e-5);
  EXPECT_NEAR(tuned.time.s_per_pair, wanted.s_per_pair, 1e-10);
  EXPECT_NEAR(tuned.time.s_per_step, wanted.s_per_step, 1e-4);
  EXPECT_EQ(tuned.time_error.samples, 40);
  EXPECT_GT(tuned.time_error.accuracy, 0.99);
  EXPECT_EQ(tuned.loss.power, 0.5);
  EXPECT_GT(tuned.loss_error.accuracy, 0.75);  // the length at the end is known from inside only
  EXPECT_GT(tuned.loss_error.noise, 0);
}

TEST(Fit, FindsTheRatioOfALinkThatIsSlowerThanMeasured) {
  Tuned tuned = made_up();
  tuned.facts.rates.all_to_all_bandwidth *= 8;
  fit(tuned);
  EXPECT_GT(tuned.time_error.accuracy, 0.99);
  EXPECT_NEAR(tuned.time.s_per_byte, made_up_times().s_per_byte, 5e-8);
  EXPECT_NEAR(tuned.time.s_per_near_byte, made_up_times().s_per_near_byte, 1e-8);
}

TEST(Fit, JudgesEachPromptByTheOthers) {
  Tuned tuned = made_up();
  for (Sample& sample : tuned.samples)
    if (sample.prompt == "prompt-2000") sample.loss += 10, sample.ttft_s *= 10;
  fit(tuned);
  // A prompt that is like no other is not expected, although the final models are fitted to it.
  EXPECT_GT(tuned.loss_error.mean_absolute, 2.5);
  EXPECT_LT(tuned.time_error.accuracy, 0.5);
  EXPECT_GT(tuned.loss.loss(2000, {0.5, 2}), 1);
}

TEST(Fit, SaysWhetherGoalsAreKeptWithPromptsThatAreHeldOut) {
  Tuned tuned = made_up();
  fit(tuned);
  ASSERT_EQ(tuned.held_out_goals.size(), std::size(goal_losses) + std::size(goal_times));
  for (const HeldOutGoal& of : tuned.held_out_goals) {
    if (of.prompts == 0) continue;
    EXPECT_EQ(of.kept,
              of.measured <= (of.goal.loss ? std::max(*of.goal.loss, no_loss) : *of.goal.ttft_s));
  }
  EXPECT_TRUE(tuned.held_out_goals.front().kept);
  // One prompt loses what the others do not.
  for (Sample& sample : tuned.samples)
    if (sample.prompt == "prompt-8000" && sample.setting.drop > 0) sample.loss += 10;
  fit(tuned);
  EXPECT_FALSE(tuned.held_out_goals[4].kept);
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
        for (const int micro : tuned.micros) {
          Found before{{}, -1, HUGE_VAL};
          for (const double drop : fine_drops()) {
            const Found found = tuned.costs(tokens).of({drop, choice.count(), {micro}});
            EXPECT_GE(found.loss, before.loss) << tokens << " tokens, drop " << drop;
            if (before.setting.drop > 0) {  // to drop at all may take time
              EXPECT_LE(found.ttft_s, before.ttft_s) << tokens << " tokens, drop " << drop;
            }
            before = found;
          }
        }
      }
  }
}

TEST(LossModel, KeepsToTheLengthsItHasSeen) {
  Tuned tuned = made_up();
  fit(tuned);
  const Setting half{0.5, 2};
  EXPECT_EQ(tuned.loss.loss(10, half), tuned.loss.loss(1000, half));
  EXPECT_EQ(tuned.loss.loss(1'000'000, half), tuned.loss.loss(8000, half));
  EXPECT_GT(tuned.loss.loss(1000, half), tuned.loss.loss(8000, half));
}

Sample sample_of(const std::string& prompt, double drop, double loss, double error = 0,
                 int64_t tokens = 1000) {
  Sample sample{.prompt = prompt, .tokens = tokens, .setting = {drop, 2}};
  sample.loss = loss, sample.loss_error = error;
  return sample;
}

TEST(LossModel, AveragesPromptsByTheirTokensAndGoesStraightBetweenDrops) {
  const LossModel model = fit_loss({sample_of("a", 0.2, 0.01, 0, 1000), sample_of("a", 0.4, 0.03),
                                    sample_of("b", 0.2, 0.04, 0, 1999), sample_of("b", 0.4, 0.05)},
                                   NoDrop::exact);
  const double at_02 = (1000 * 0.01 + 1999 * 0.04) / 2999;
  EXPECT_NEAR(model.loss(1500, {0.2, 2}), at_02, 1e-12);
  EXPECT_NEAR(model.loss(1500, {0.1, 2}), at_02 / 2, 1e-12);
  EXPECT_NEAR(model.loss(1500, {0.3, 2}), (at_02 + 0.04) / 2, 1e-12);
  EXPECT_NEAR(model.loss(1500, {0.9, 2}), 0.04, 1e-12);
  EXPECT_EQ(model.loss(1500, {0, 2}), 0);
  EXPECT_THROW(model.loss(1500, {0.2, 3}), InvalidArgument);
}

TEST(LossModel, JumpsAfterDropZeroWhereALevelLeavesOutHalfAtOnce) {
  std::vector<Sample> samples{sample_of("a", 0.2, 0.02), sample_of("a", 0.4, 0.03)};
  for (Sample& sample : samples) sample.setting.levels = 3;
  const LossModel model = fit_loss(samples, NoDrop::exact);
  EXPECT_EQ(model.loss(1000, {0, 3}), 0);
  EXPECT_NEAR(model.loss(1000, {0.02, 3}), 0.02, 1e-12);
  EXPECT_NEAR(model.loss(1000, {0.3, 3}), 0.025, 1e-12);
}

TEST(LossModel, PoolsLossesThatFallWhereMoreIsDropped) {
  const LossModel model = fit_loss({sample_of("a", 0.1, -0.01), sample_of("a", 0.2, 0.04),
                                    sample_of("a", 0.3, 0.02), sample_of("a", 0.4, 0.05)},
                                   NoDrop::measured);
  EXPECT_EQ(model.loss(1000, {0, 2}), 0) << "less than nothing is no loss";
  EXPECT_NEAR(model.loss(1000, {0.2, 2}), 0.03, 1e-12);
  EXPECT_NEAR(model.loss(1000, {0.3, 2}), 0.03, 1e-12);
  EXPECT_NEAR(model.loss(1000, {0.4, 2}), 0.05, 1e-12);
}

TEST(LossModel, BoundsTheLossByTheLargerOfTwoErrors) {
  const auto bound = [](const std::vector<Sample>& samples) {
    return fit_loss(samples, NoDrop::exact).bound(1000, {0.5, 2}) - 0.02;
  };
  // Prompts that differ by more than their own errors, and by less.
  EXPECT_NEAR(bound({sample_of("a", 0.5, 0.01, 0.001), sample_of("b", 0.5, 0.03, 0.001)}), 0.01,
              1e-12);
  EXPECT_NEAR(bound({sample_of("a", 0.5, 0.02, 0.006), sample_of("b", 0.5, 0.02, 0.008)}), 0.005,
              1e-12);
}

TEST(LossModel, LosesNothingWithoutDropUnlessItWasMeasured) {
  const std::vector<Sample> samples{sample_of("a", 0, 0.01), sample_of("a", 0.5, 0.03)};
  EXPECT_EQ(fit_loss(samples, NoDrop::exact).bound(1000, {0, 2}), 0);
  EXPECT_NEAR(fit_loss(samples, NoDrop::measured).loss(1000, {0, 2}), 0.01, 1e-12);
}

TEST(TimeModel, ReadsLongPromptsInPasses) {
  TimeModel model = made_up_times();
  const Tuned tuned = made_up();
  const double in_two = model.ttft_s(8192, {0, 2}, tuned.levels[0]);
  model.facts.pass_tokens = 8192;
  const double in_one = model.ttft_s(8192, {0, 2}, tuned.levels[0]);
  // The second pass sends the keys of the first again.
  EXPECT_GT(in_two, in_one);
}

TEST(TimeModel, TakesTheRatesOfAnotherMachine) {
  const TimeModel model = made_up_times();
  const Tuned tuned = made_up();
  const LevelChoice& choice = tuned.levels[0];
  parallel::RingRates rates = model.facts.rates;
  EXPECT_TRUE(model.is_of(rates));
  EXPECT_EQ(model.with(rates).ttft_s(4000, {0, 2}, choice), model.ttft_s(4000, {0, 2}, choice));
  rates.all_to_all_bandwidth /= 10;
  EXPECT_FALSE(model.is_of(rates));
  EXPECT_GT(model.with(rates).ttft_s(4000, {0, 2}, choice), model.ttft_s(4000, {0, 2}, choice));
  rates = model.facts.rates, rates.flops *= 10;
  EXPECT_FALSE(model.is_of(rates));
  EXPECT_LT(model.with(rates).dense_ttft_s(4000, 4), model.dense_ttft_s(4000, 4));
}

TEST(TimeModel, IsFittedWithoutRatesWhereNoTokensTravel) {
  TimeModel truth = made_up_times();
  truth.facts.rates = {};
  truth.s_per_byte = truth.s_per_near_byte = 0;
  std::vector<LevelChoice> choices = made_up().levels;
  std::vector<Sample> samples;
  for (const int64_t tokens : {2000, 4000, 8000})
    for (const double drop : {0.0, 0.2, 0.6}) {
      Sample& sample = samples.emplace_back();
      sample.tokens = tokens, sample.setting = {drop, 2};
      sample.ttft_s = truth.ttft_s(tokens, sample.setting, choices[0]);
    }
  const TimeModel found = fit_time(samples, choices, truth.facts);
  EXPECT_EQ(found.s_per_byte, 0);
  const Setting other{0.4, 2};
  const double expected = truth.ttft_s(6000, other, choices[0]);
  EXPECT_NEAR(found.ttft_s(6000, other, choices[0]), expected, 0.01 * expected);
  EXPECT_TRUE(found.is_of({})) << "a run of such ranks measures no rates";
}

TEST(Candidates, GoNoFurtherThanWhatWasMeasured) {
  EXPECT_DOUBLE_EQ(made_up().candidates().drops.back(), 0.9);
  EXPECT_EQ(made_up().candidates().levels, (std::vector<int>{2, 3}));
}

TEST(Fit, SaysHowMuchOfDenseRetrievalIsLeft) {
  Tuned tuned = made_up();
  fit(tuned);
  const Costs costs = tuned.costs(3000);
  for (const int levels : {2, 3}) {
    EXPECT_DOUBLE_EQ(costs.retrieval({0, levels}), 1);
    EXPECT_NEAR(costs.retrieval({0.5, levels}), 0.5, 1e-12);
    EXPECT_NEAR(costs.retrieval({0.9, levels}), 0.1, 1e-12);
  }
  EXPECT_NEAR(costs.retrieval({0.3, 2}), 0.7, 1e-12);
  // A prompt in which nothing is found makes what is expected less certain.
  for (Sample& sample : tuned.samples)
    if (sample.prompt == "prompt-2000" && sample.setting.drop > 0) sample.retrieval = 0;
  fit(tuned);
  EXPECT_NEAR(tuned.missed.loss(1, {0.5, 2}), 0.25 * (3 * 0.5 + 1), 1e-12);
  EXPECT_LT(tuned.costs(3000).retrieval({0.5, 2}), 0.3);
  for (DenseSample& prompt : tuned.dense) prompt.retrieval = 0;
  for (Sample& sample : tuned.samples) sample.retrieval = 0;
  fit(tuned);
  EXPECT_EQ(tuned.costs(3000).retrieval({0.5, 2}), 1);
}

TEST(Fit, RefusesTooFewSamples) {
  Tuned tuned = made_up();
  tuned.samples.resize(fewest_samples - 1);
  EXPECT_THROW(fit(tuned), InvalidArgument);
  tuned = made_up();
  tuned.dense.resize(1);
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
