// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "lib/base/core/error.hpp"
#include "lib/simulation/tune/resolve.hpp"
#include "tests/tune/made_up.hpp"

namespace pecia::tune {
namespace {

using testing::HasSubstr;

class ResolveTest : public testing::Test {
 protected:
  void SetUp() override {
    fit(tuned_);
    wanted_.file = "tuned.json";
    wanted_.version = tuned_.version;
    wanted_.model_path = tuned_.model_path, wanted_.config_sha256 = tuned_.config_sha256;
    wanted_.cp = 4;
    wanted_.longest_tokens = 4000;
    wanted_.goal.loss = 0.02;
    wanted_.levels_here = [](int count) {
      const std::vector<int> together(4);
      return parallel::levels_of(together, together, count);
    };
  }

  std::string refusal() const {
    try {
      resolve(tuned_, wanted_);
      return "";
    } catch (const InputError& error) {
      return error.what();
    }
  }

  Tuned tuned_ = made_up();
  Wanted wanted_;
};

TEST_F(ResolveTest, ChoosesTheFastestWithinALossAndSaysWhatIsExpected) {
  const Resolved resolved = resolve(tuned_, wanted_);
  const Costs costs = tuned_.costs(4000);
  const Found found = costs.of(resolved.setting);
  EXPECT_LE(found.loss, 0.02);
  EXPECT_GT(costs.loss({resolved.setting.drop + 0.02, resolved.setting.levels}), 0.02);
  EXPECT_THAT(resolved.why, testing::ContainsRegex(
                                "levels in [1248] parts? by tuned.json, expected to lose 0.0"));
  EXPECT_THAT(resolved.why, HasSubstr("densely 7.7"));
}

TEST_F(ResolveTest, ChoosesTheLeastLossWithinATime) {
  const double no_drop = tuned_.costs(4000).ttft_s({0, 2, {1}});
  wanted_.goal = {{}, 0.9 * no_drop};
  const Resolved resolved = resolve(tuned_, wanted_);
  EXPECT_LE(tuned_.costs(4000).ttft_s(resolved.setting), 0.9 * no_drop);
  EXPECT_GT(resolved.setting.drop, 0);
}

TEST_F(ResolveTest, HoldsRetrievalBesides) {
  wanted_.goal = {0.1, {}, 0.8};
  const Resolved resolved = resolve(tuned_, wanted_);
  EXPECT_DOUBLE_EQ(resolved.setting.drop, 0.2);  // a fifth is not retrieved then
  EXPECT_THAT(resolved.why,
              HasSubstr("to retrieve 80 % of what dense attention does (at least 80 %)"));
  wanted_.goal = {{}, 0.7 * tuned_.costs(4000).ttft_s({0, 2, {1}}), 0.99};
  EXPECT_THAT(refusal(), testing::ContainsRegex("ttft: .*s, retrieval: 0.99} cannot be met"));
}

TEST_F(ResolveTest, KeepsToThePartsThatTheJobNames) {
  for (const parallel::Micros& micros : {parallel::Micros{1}, {3}, {8, 2}}) {
    wanted_.micros = micros;
    EXPECT_EQ(resolve(tuned_, wanted_).setting.micros, micros);
  }
}

TEST_F(ResolveTest, GivesTheSharesOfLayersAndHeads) {
  tuned_ = made_up_with_deals();
  fit(tuned_);
  const Resolved resolved = resolve(tuned_, wanted_);
  EXPECT_EQ(resolved.setting.deal, Deal::mass);
  ASSERT_EQ(std::ssize(resolved.layers), tuned_.facts.layers);
  EXPECT_EQ(resolved.layers[1].size(), 2U);
  EXPECT_NEAR(parallel::mean_drop(resolved.layers), resolved.setting.drop, 0.02);
  EXPECT_THAT(resolved.why, testing::ContainsRegex("drop 0.[0-9]+ by mass at [23] levels in"));
  wanted_.goal = {{}, 100};
  EXPECT_TRUE(resolve(tuned_, wanted_).layers.empty()) << "nothing is dropped";
}

TEST_F(ResolveTest, ChoosesOtherwiseWhereLinksAreSlower) {
  wanted_.levels = 2;
  wanted_.goal = {{}, 0.8 * tuned_.costs(4000).ttft_s({0, 2, {1}})};
  const Resolved as_there = resolve(tuned_, wanted_);
  wanted_.rates = tuned_.facts.rates;
  EXPECT_EQ(resolve(tuned_, wanted_).setting, as_there.setting);
  wanted_.rates->all_to_all_bandwidth /= 1.3;
  const Resolved here = resolve(tuned_, wanted_);
  EXPECT_GT(here.setting.drop, as_there.setting.drop);
  EXPECT_THAT(here.why, HasSubstr("with the rates of this run's machine"));
  wanted_.rates->all_to_all_bandwidth /= 1000;
  EXPECT_THAT(refusal(), HasSubstr("with the rates of this run's machine"));
}

TEST_F(ResolveTest, KeepsToTheLevelsThatTheJobNames) {
  for (const int levels : {2, 3}) {
    wanted_.levels = levels;
    EXPECT_EQ(resolve(tuned_, wanted_).setting.levels, levels);
  }
  wanted_.levels = 4;
  EXPECT_THAT(refusal(), HasSubstr("attention.levels: tuned.json knows 2, 3 levels, and not 4"));
}

TEST_F(ResolveTest, SaysTheBestThatCanWhereAGoalCannotBeMet) {
  wanted_.goal = {{}, 1};
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("attention.objective: {ttft: 1s} cannot be met "
                                                  "for a prompt of 4000 tokens"),
                                        HasSubstr("the best that can is drop 0.90 at ")));
}

TEST_F(ResolveTest, NamesWhatIsOther) {
  const Wanted same = wanted_;
  wanted_.version = "1.2.4";
  EXPECT_THAT(refusal(), HasSubstr("for another version: 1.2.3 there, 1.2.4 here"));
  wanted_ = same, wanted_.config_sha256 = std::string(64, 'b');
  EXPECT_THAT(refusal(),
              HasSubstr("for another model: models/made-up (config.json aaaaaaaaaaaa…)"));
  wanted_ = same, wanted_.tp = 2;
  EXPECT_THAT(refusal(),
              HasSubstr("for another grid: cp × sp 4, tp 1 there, cp × sp 4, tp 2 here"));
  wanted_ = same, wanted_.geometry = parallel::Geometry::nested;
  EXPECT_THAT(refusal(), HasSubstr("for another geometry: disjoint there, nested here"));
  wanted_ = same, wanted_.levels_here = [](int count) {
    const std::vector<int> servers{0, 1, 1, 1}, racks(4);
    return parallel::levels_of(servers, racks, count);
  };
  EXPECT_THAT(refusal(), HasSubstr("for ranks in other places: 3 levels join other ranks"));
}

TEST_F(ResolveTest, NeedsNoPlacesAndNoSamePath) {
  wanted_.levels_here = {};
  wanted_.model_path = "elsewhere";
  EXPECT_EQ(refusal(), "");
}

TEST_F(ResolveTest, SaysWhereAPromptIsLongerThanThoseOfCalibration) {
  EXPECT_THAT(resolve(tuned_, wanted_).why, testing::Not(HasSubstr("calibration")));
  wanted_.longest_tokens = 9000;
  EXPECT_THAT(resolve(tuned_, wanted_).why,
              HasSubstr("(it has 9000 tokens, and calibration had 1000 to 8000)"));
}

}  // namespace
}  // namespace pecia::tune
