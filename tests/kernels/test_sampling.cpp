// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::SamplingParams;
using kernels::SamplingRow;

class Sampling : public testing::TestWithParam<std::string> {
 protected:
  struct Choice {
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;
    std::vector<int32_t> top_tokens;
    std::vector<float> top_logprobs;
  };

  Choice sample(std::vector<float> logits, const std::vector<SamplingRow>& rows,
                int64_t num_top = 0) {
    const auto num_rows = static_cast<int64_t>(rows.size());
    const auto vocab = static_cast<int64_t>(logits.size()) / num_rows;
    Choice choice{std::vector<int32_t>(num_rows), std::vector<float>(num_rows),
                  std::vector<int32_t>(num_rows * std::max<int64_t>(num_top, 0)),
                  std::vector<float>(num_rows * (num_top < 0 ? vocab : num_top))};
    device_.backend->sample({.logits = {logits.data(), DType::fp32, {num_rows, vocab}},
                             .rows = rows,
                             .num_top = num_top,
                             .tokens = choice.tokens,
                             .token_logprobs = choice.logprobs,
                             .top_tokens = choice.top_tokens,
                             .top_logprobs = choice.top_logprobs},
                            device_.stream);
    return choice;
  }

  int32_t sample_one(const std::vector<float>& logits, const SamplingParams& params, double uniform,
                     std::span<const int32_t> prompt = {}, std::span<const int32_t> output = {}) {
    return sample(logits, {{params, uniform, prompt, output}}).tokens[0];
  }

  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, Sampling, testing::ValuesIn(every_device()), name_of_device);

std::vector<float> logs(std::vector<float> probabilities) {
  for (float& p : probabilities) p = std::log(p);
  return probabilities;
}

// Ranked: token 2 (0.4), 0 (0.3), 3 (0.2), 1 (0.1); cumulative 0.4, 0.7, 0.9, 1.
const std::vector<float> four = logs({0.3f, 0.1f, 0.4f, 0.2f});

TEST_P(Sampling, GreedyTakesTheLowestIdAmongEquals) {
  std::vector<float> logits(100, 1.0f);
  EXPECT_EQ(sample_one(logits, {}, 0.9), 0);
  logits[37] = logits[98] = 2.0f;
  EXPECT_EQ(sample_one(logits, {}, 0.9), 37);
  EXPECT_EQ(sample_one({-3.0f}, {}, 0.5), 0);
}

TEST_P(Sampling, FollowsTheCumulativeDistributionMostLikelyFirst) {
  const SamplingParams params{.temperature = 1.0f};
  EXPECT_EQ(sample_one(four, params, 0.0), 2);
  EXPECT_EQ(sample_one(four, params, 0.39), 2);
  EXPECT_EQ(sample_one(four, params, 0.41), 0);
  EXPECT_EQ(sample_one(four, params, 0.69), 0);
  EXPECT_EQ(sample_one(four, params, 0.71), 3);
  EXPECT_EQ(sample_one(four, params, 0.91), 1);
  EXPECT_EQ(sample_one(four, params, 1 - 0x1p-53), 1);
}

TEST_P(Sampling, TemperatureSharpensTheDistribution) {
  // Squares of the probabilities, 16 : 9 : 4 : 1 of 30.
  const SamplingParams params{.temperature = 0.5f};
  EXPECT_EQ(sample_one(four, params, 0.53), 2);
  EXPECT_EQ(sample_one(four, params, 0.54), 0);
  EXPECT_EQ(sample_one(four, params, 0.83), 0);
  EXPECT_EQ(sample_one(four, params, 0.84), 3);
  EXPECT_EQ(sample_one(four, params, 0.97), 1);
}

TEST_P(Sampling, TopKKeepsTheMostLikely) {
  const SamplingParams params{.temperature = 1.0f, .top_k = 2};  // 4/7, 3/7
  EXPECT_EQ(sample_one(four, params, 0.57), 2);
  EXPECT_EQ(sample_one(four, params, 0.58), 0);
  EXPECT_EQ(sample_one(four, params, 0.999), 0);
  EXPECT_EQ(sample_one({1, 1, 1}, params, 0.999), 1);  // ties by id: 0 and 1 stay
}

TEST_P(Sampling, TopPKeepsTheSmallestSetThatReachesIt) {
  SamplingParams params{.temperature = 1.0f, .top_p = 0.65f};  // 0.4 + 0.3
  EXPECT_EQ(sample_one(four, params, 0.999), 0);
  params.top_p = 0.72f;
  EXPECT_EQ(sample_one(four, params, 0.999), 3);
  params.top_p = 1e-6f;
  EXPECT_EQ(sample_one(four, params, 0.999), 2);
  params.top_p = 0.5f;
  EXPECT_EQ(sample_one({1, 1, 1, 1}, params, 0.999), 1);  // two of four equal ones reach it exactly
  // Of what top_k left: 0.4 of 0.7 is 0.57.
  params = {.temperature = 1.0f, .top_k = 2, .top_p = 0.5f};
  EXPECT_EQ(sample_one(four, params, 0.999), 2);
}

TEST_P(Sampling, MinPKeepsAShareOfTheMostLikely) {
  SamplingParams params{.temperature = 1.0f, .min_p = 0.6f};  // at least 0.24
  EXPECT_EQ(sample_one(four, params, 0.999), 0);
  params.min_p = 0.4f;  // 0.16
  EXPECT_EQ(sample_one(four, params, 0.999), 3);
  params = {.temperature = 1.0f, .top_p = 0.65f, .min_p = 0.4f};
  EXPECT_EQ(sample_one(four, params, 0.999), 0);
}

TEST_P(Sampling, PenaltiesActOnTokensSeen) {
  const std::vector<float> logits = {2.0f, 1.5f, -1.0f, -1.2f};
  const std::vector<int32_t> zero = {0}, none = {}, two = {2}, zero_thrice = {0, 0, 0};
  // 2.0 / 1.5 < 1.5 whether the token is in the prompt or in the output; once, however often it
  // occurs.
  EXPECT_EQ(sample_one(logits, {.repetition_penalty = 1.5f}, 0.5, zero, none), 1);
  EXPECT_EQ(sample_one(logits, {.repetition_penalty = 1.5f}, 0.5, none, zero), 1);
  EXPECT_EQ(sample_one(logits, {.repetition_penalty = 1.2f}, 0.5, zero_thrice, zero_thrice), 0);
  // Negative logits are multiplied: −1.0 · 1.5 < −1.2.
  EXPECT_EQ(sample_one({-9, -9, -1.0f, -1.2f}, {.repetition_penalty = 1.5f}, 0.5, two, none), 3);
  // Presence once and frequency per occurrence, of the output only.
  EXPECT_EQ(sample_one(logits, {.presence_penalty = 0.4f}, 0.5, none, zero_thrice), 0);
  EXPECT_EQ(sample_one(logits, {.presence_penalty = 0.6f}, 0.5, none, zero), 1);
  EXPECT_EQ(sample_one(logits, {.presence_penalty = 0.6f}, 0.5, zero, none), 0);
  EXPECT_EQ(sample_one(logits, {.frequency_penalty = 0.2f}, 0.5, none, zero), 0);
  EXPECT_EQ(sample_one(logits, {.frequency_penalty = 0.2f}, 0.5, none, zero_thrice), 1);
}

TEST_P(Sampling, BiasesComeBeforePenaltiesAndFilters) {
  const std::vector<float> logits = {2.0f, 1.5f, -1.0f, -1.2f};
  const std::vector<kernels::LogitBias> up = {{3, 4.0f}, {0, -0.2f}}, ban = {{0, -100.0f}};
  const std::vector<int32_t> three = {3};
  const auto choose = [&](const SamplingParams& params, std::span<const kernels::LogitBias> bias,
                          double uniform, std::span<const int32_t> output = {}) {
    return sample(logits, {{params, uniform, {}, output, bias}}).tokens[0];
  };
  EXPECT_EQ(choose({}, up, 0.5), 3);  // −1.2 + 4 = 2.8
  EXPECT_EQ(choose({}, ban, 0.5), 1);
  EXPECT_EQ(choose({.temperature = 1.0f}, ban, 0.0), 1);
  EXPECT_EQ(choose({.temperature = 1.0f, .top_k = 1}, up, 0.999), 3);
  // 2.8 is divided, as it is positive with its bias: 2.8 / 2 < 1.8.
  EXPECT_EQ(choose({.repetition_penalty = 2.0f}, up, 0.5, three), 0);
  // Log-probabilities are of the logits without biases.
  const Choice choice = sample(four, {{{}, 0.5, {}, {}, ban}}, 1);
  EXPECT_EQ(choice.top_tokens[0], 2);
  EXPECT_NEAR(choice.top_logprobs[0], std::log(0.4f), 1e-6);
  EXPECT_THROW(choose({}, std::vector<kernels::LogitBias>{{4, 1.0f}}, 0.5), InvalidArgument);
  EXPECT_THROW(choose({}, std::vector<kernels::LogitBias>{{0, NAN}}, 0.5), InvalidArgument);
}

TEST_P(Sampling, TinyTemperaturesAreGreedy) {
  // 1e-39 and 1e-40 are subnormal: their reciprocals are infinite in fp32.
  for (const float temperature : {1e-45f, 1e-40f, 1e-39f, 1e-20f, 9e-6f})
    for (const double uniform : {0.0, 0.5, 0.999999})
      EXPECT_EQ(sample_one(four, {.temperature = temperature}, uniform), 2) << temperature;
  EXPECT_EQ(sample_one(four, {.temperature = 1e38f, .top_k = 3}, 0.99), 3);  // all alike
}

/// Positive finite values over all magnitudes of fp32, the ends among them.
std::vector<float> magnitudes(uint64_t seed, int count) {
  using Limits = std::numeric_limits<float>;
  std::vector<float> values = {Limits::denorm_min(), Limits::min(), 1e-42f, 1.0f, Limits::max()};
  for (const float exponent : random_floats(count, seed, 70.0f))
    values.push_back(std::clamp(std::exp2(exponent - 11), Limits::denorm_min(), Limits::max()));
  return values;
}

// Any legal parameters give a token that a mask allows, with a log-probability, and the reference
// finds the same one.
TEST_P(Sampling, AnyParametersGiveAnAllowedToken) {
  constexpr int64_t vocab = 70;
  const std::vector<int32_t> prompt = {0, 5, 5, 69}, output = {3, 5, 68, 68, 68};
  const std::vector<kernels::LogitBias> bias = {{5, -100.0f}, {7, 100.0f}, {11, 3e38f}};
  const std::vector<float> extremes = magnitudes(4, 12);
  std::vector<SamplingRow> rows;
  const auto add = [&](SamplingParams params, bool biased) {
    for (const double uniform : {0.0, 0.37, 1 - 0x1p-53})
      rows.push_back({params, uniform, prompt, output,
                      biased ? std::span<const kernels::LogitBias>(bias)
                             : std::span<const kernels::LogitBias>()});
  };
  for (const float value : extremes) {
    const float share = std::min(value, 1.0f);
    for (const int32_t top_k : {0, 1, 9, std::numeric_limits<int32_t>::max()}) {
      add({.temperature = value, .top_k = top_k}, value < 1);
      add({.temperature = value, .top_k = top_k, .top_p = share, .min_p = share}, false);
      add({.temperature = 0.7f, .top_k = top_k, .top_p = share, .repetition_penalty = value}, true);
      add({.temperature = value,
           .min_p = share,
           .repetition_penalty = 1 / std::max(value, 1e-38f),
           .presence_penalty = value,
           .frequency_penalty = -value},
          false);
      add({.repetition_penalty = value, .frequency_penalty = value}, true);
    }
  }
  const auto num_rows = static_cast<int64_t>(rows.size());
  std::vector<float> logits = random_floats(num_rows * vocab, 9, 30.0f);
  for (size_t i = 0; i < logits.size(); i += 7) logits[i] = -INFINITY;  // masked
  const Choice choice = sample(logits, rows);
  Device oracle = make_device("reference");
  std::swap(device_, oracle);
  const Choice expected = sample(logits, rows);
  for (int64_t r = 0; r < num_rows; ++r) {
    const int32_t token = choice.tokens[r];
    const SamplingParams& params = rows[r].params;
    const auto what = [&] {
      return fmt::format(
          "row {}: temperature {}, top_k {}, top_p {}, min_p {}, penalties {}, {}, {}", r,
          params.temperature, params.top_k, params.top_p, params.min_p, params.repetition_penalty,
          params.presence_penalty, params.frequency_penalty);
    };
    ASSERT_TRUE(token >= 0 && token < vocab) << what();
    EXPECT_TRUE(std::isfinite(logits[r * vocab + token])) << "masked token " << token << what();
    EXPECT_TRUE(std::isfinite(choice.logprobs[r])) << what();
    // Beside the end of the distribution, rounding decides.
    if (rows[r].uniform < 0.999) {
      EXPECT_EQ(token, expected.tokens[r]) << what();
    }
  }
}

TEST_P(Sampling, LogprobsAreOfThePlainSoftmax) {
  const std::vector<int32_t> seen = {2};
  const SamplingRow row{{.temperature = 3.0f, .top_k = 1, .presence_penalty = 5.0f}, 0.5, {}, seen};
  const Choice choice = sample(four, {row}, 3);
  EXPECT_EQ(choice.tokens[0], 0);
  EXPECT_NEAR(choice.logprobs[0], std::log(0.3f), 1e-6);
  EXPECT_EQ(choice.top_tokens, (std::vector<int32_t>{2, 0, 3}));
  EXPECT_TRUE(all_close(choice.top_logprobs, logs({0.4f, 0.3f, 0.2f}), 1e-6));
}

TEST_P(Sampling, TheWholeVocabularyIsByTokenId) {
  std::vector<float> shifted = four;
  for (float& logit : shifted) logit += 100.0f;  // exp would overflow without the maximum
  const Choice choice = sample(shifted, {{{}, 0.0, {}, {}}}, -1);
  EXPECT_TRUE(choice.top_tokens.empty());
  EXPECT_TRUE(all_close(choice.top_logprobs, four, 1e-5));
}

TEST_P(Sampling, TopsOfEqualLogitsAreOrderedById) {
  const Choice choice = sample(std::vector<float>(50, -2.0f), {{{}, 0.0, {}, {}}}, 4);
  EXPECT_EQ(choice.top_tokens, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_TRUE(all_close(choice.top_logprobs, std::vector<float>(4, -std::log(50.0f)), 1e-6));
}

TEST_P(Sampling, EvenUniformsGiveTheDistribution) {
  const int num_draws = 1000;
  const SamplingParams params{.temperature = 1.0f};
  std::map<int32_t, int> counts;
  for (int i = 0; i < num_draws; ++i) ++counts[sample_one(four, params, (i + 0.5) / num_draws)];
  EXPECT_NEAR(counts[2], 400, 1);
  EXPECT_NEAR(counts[0], 300, 1);
  EXPECT_NEAR(counts[3], 200, 1);
  EXPECT_NEAR(counts[1], 100, 1);
}

TEST_P(Sampling, AgreesWithTheReferenceOnManyRows) {
  Device oracle = make_device("reference");
  for (const int64_t vocab : {1, 2, 15, 33, 1000, 5003}) {
    std::vector<int32_t> prompt, output;
    for (int32_t i = 0; i < 40; ++i) {
      prompt.push_back(i * 7 % static_cast<int32_t>(vocab));
      output.push_back(i * i % static_cast<int32_t>(vocab));
    }
    std::vector<SamplingRow> rows;
    for (const float temperature : {0.0f, 0.7f, 1.5f})
      for (const int32_t top_k : {0, 1, 20, 100000})
        for (const float top_p : {1.0f, 0.9f, 0.3f})
          for (const float min_p : {0.0f, 0.05f})
            for (const float penalty : {1.0f, 1.3f})
              rows.push_back({{temperature, top_k, top_p, min_p, penalty, penalty - 1, 0.1f},
                              std::fmod(rows.size() * 0.6180339887, 1.0),
                              prompt,
                              output});
    const auto num_rows = static_cast<int64_t>(rows.size());
    const std::vector<float> logits = random_floats(num_rows * vocab, 9, 3.0f);
    const int64_t num_top = std::min<int64_t>(vocab, 20);
    const Choice actual = sample(logits, rows, num_top);
    std::swap(device_, oracle);
    const Choice expected = sample(logits, rows, num_top);
    std::swap(device_, oracle);
    EXPECT_EQ(actual.tokens, expected.tokens) << "vocab " << vocab;
    EXPECT_EQ(actual.top_tokens, expected.top_tokens);
    EXPECT_TRUE(all_close(actual.logprobs, expected.logprobs, 2e-6, 0x1p-22));
    EXPECT_TRUE(all_close(actual.top_logprobs, expected.top_logprobs, 2e-6, 0x1p-22));
  }
}

TEST_P(Sampling, LogProbsOfGivenTokens) {
  std::vector<float> logits = four;
  logits.insert(logits.end(), four.begin(), four.end());
  const std::vector<int32_t> tokens = {1, 2};
  std::vector<float> logprobs(2), top_logprobs(2);
  std::vector<int32_t> top_tokens(2);
  device_.backend->log_probs({.logits = {logits.data(), DType::fp32, {2, 4}},
                              .tokens = tokens,
                              .num_top = 1,
                              .token_logprobs = logprobs,
                              .top_tokens = top_tokens,
                              .top_logprobs = top_logprobs},
                             device_.stream);
  EXPECT_TRUE(all_close(logprobs, logs({0.1f, 0.4f}), 1e-6));
  EXPECT_EQ(top_tokens, (std::vector<int32_t>{2, 2}));
  EXPECT_TRUE(all_close(top_logprobs, logs({0.4f, 0.4f}), 1e-6));
}

TEST_P(Sampling, ARowThatHoldsNoNumberGivesNoTokenAndHarmsNoOther) {
  for (const float bad : {NAN, INFINITY}) {
    for (const float temperature : {0.0f, 1.0f}) {
      const SamplingRow row{{.temperature = temperature}, 0.5, {}, {}};
      std::vector<float> logits = random_floats(200, 1);
      const std::vector<float> first(logits.begin(), logits.begin() + 100);
      logits[137] = bad;

      const Choice choice = sample(logits, {row, row}, 2);

      EXPECT_EQ(choice.tokens,
                (std::vector<int32_t>{sample_one(first, row.params, 0.5), kernels::no_token}));
      EXPECT_TRUE(std::isfinite(choice.logprobs[0]));
      EXPECT_TRUE(std::isnan(choice.logprobs[1]));
      EXPECT_EQ(choice.top_tokens[2], kernels::no_token);
      EXPECT_TRUE(std::isnan(choice.top_logprobs[3]));
    }
  }
}

TEST_P(Sampling, RefusesContradictions) {
  const std::vector<int32_t> outside = {4};
  EXPECT_THROW(sample_one(four, {.temperature = -1.0f}, 0.5), InvalidArgument);
  EXPECT_THROW(sample_one(four, {.top_p = 0.0f}, 0.5), InvalidArgument);
  EXPECT_THROW(sample_one(four, {}, 1.0), InvalidArgument);
  EXPECT_THROW(sample_one(four, {}, 0.5, {}, outside), InvalidArgument);
  EXPECT_THROW(sample_one(four, {.repetition_penalty = 2.0f}, 0.5, outside), InvalidArgument);
  EXPECT_THROW(sample(four, {{{}, 0.5, {}, {}}}, 5), InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
