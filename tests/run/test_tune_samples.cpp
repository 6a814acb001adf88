// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "lib/run/tune_samples.hpp"
#include "lib/simulation/tune/retrieval.hpp"

namespace pecia::run {
namespace {

const tune::Setting sparse{0.5, 2, {4}};

std::vector<PromptResult> timed(double ttft_s) {
  return {{"a", 500, {}, {}, {}, ttft_s}, {"b", 600, {}, {}, {}, 2 * ttft_s}};
}

/// Two prompts and their questions, whose tokens are all 1. `found`: tokens that are the most likely.
std::vector<PromptResult> judged(double nll, int32_t answer, int32_t found) {
  std::vector<PromptResult> results;
  for (const char* prompt : {"a", "b", "a (retrieval)", "b (retrieval)"})
    results.push_back({prompt, 500, {nll, nll}, std::vector<int32_t>(500, found), {1, answer}, 99});
  return results;
}

const std::vector<io::PromptText> questions{{"a (retrieval)", std::vector<int32_t>(500, 1)},
                                            {"b (retrieval)", std::vector<int32_t>(500, 1)}};

TEST(AddSamples, TakesTheBestTimeAndJudgesBesideTheDenseRun) {
  tune::Tuned tuned;
  add_samples(
      tuned,
      {{{}, false}, {{}, true}, {sparse, false}, {sparse, true}, {sparse, false}, {{}, false}},
      {timed(3), judged(2, 5, 1), timed(1), judged(2.5, 6, 0), timed(0.5), timed(4)}, questions);
  ASSERT_EQ(tuned.dense.size(), 2U);
  ASSERT_EQ(tuned.samples.size(), 2U);
  EXPECT_EQ(tuned.dense[0].ttft_s, 3);
  EXPECT_EQ(tuned.dense[1].ttft_s, 6);
  EXPECT_EQ(tuned.dense[0].retrieval, 1);
  EXPECT_EQ(tuned.samples[1].prompt, "b");
  EXPECT_EQ(tuned.samples[0].ttft_s, 0.5);
  EXPECT_EQ(tuned.samples[1].ttft_s, 1);
  EXPECT_EQ(tuned.samples[0].setting, sparse);
  EXPECT_EQ(tuned.samples[0].loss, 0.5);
  EXPECT_EQ(tuned.samples[0].same_answers, 0.5);
  EXPECT_EQ(tuned.samples[0].retrieval, 0);
}

TEST(AddSamples, RefusesASettingWithoutATime) {
  tune::Tuned tuned;
  EXPECT_THROW(add_samples(tuned, {{{}, true}}, {judged(2, 5, 1)}, questions), InvalidArgument);
}

}  // namespace
}  // namespace pecia::run
