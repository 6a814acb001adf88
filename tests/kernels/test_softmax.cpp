// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/attention/softmax_bf16.hpp"
#include "kernels/cpu/products/bf16_native.hpp"
#include "kernels/cpu/sampling/vocabulary.hpp"
#include "tests/support/compare.hpp"

namespace pecia::test {
namespace {

using namespace kernels::cpu;

TEST(SoftmaxBlock, ExponentialsAreWithinTwoUnitsInTheLastPlace) {
  constexpr int64_t keys = 128;
  for (int64_t step = 0; step < 800; ++step) {
    std::vector<float> scores(keys);
    for (int64_t j = 1; j < keys; ++j)  // 0 down to −87, where results become subnormal
      scores[j] = -87.0f * static_cast<float>(j * 800 + step) / (keys * 800);
    const std::vector<float> arguments = scores;
    float maximum = -INFINITY, sum = 0, out = 0;
    softmax_block({scores.data(), keys, 1, keys}, {&maximum, &sum, &out, 1, 1});
    double expected_sum = 0;
    for (int64_t j = 0; j < keys; ++j) {
      const double expected = std::exp(double{arguments[j]});
      ASSERT_NEAR(scores[j], expected, 2 * 0x1p-23 * expected) << "exp(" << arguments[j] << ")";
      expected_sum += expected;
    }
    EXPECT_EQ(maximum, 0.0f);
    EXPECT_NEAR(sum, expected_sum, 1e-6 * expected_sum);
  }
}

TEST(SoftmaxBlock, RescalesWhatWasBeforeAndIgnoresUnseenKeys) {
  std::vector<float> scores(32, 99.0f);  // beyond three keys: padding, whatever it holds
  scores[0] = 1, scores[1] = -INFINITY, scores[2] = 1;
  float maximum = 0, sum = 2, out[2] = {4, 6};
  softmax_block({scores.data(), 32, 1, 3}, {&maximum, &sum, out, 2, 2});
  EXPECT_EQ(maximum, 1.0f);
  EXPECT_NEAR(sum, 2 + 2 * std::exp(-1.0f), 1e-6);
  EXPECT_NEAR(out[0], 4 * std::exp(-1.0f), 1e-6);
  EXPECT_NEAR(out[1], 6 * std::exp(-1.0f), 1e-6);
  EXPECT_EQ((std::vector<float>(scores.begin(), scores.begin() + 4)),
            (std::vector<float>{1, 0, 1, 0}));
}

/// On a CPU without the instructions there is nothing to test.
TEST(SoftmaxBlockBf16, IsTheOtherOneRounded) {
  if (!has_native_bf16()) return;
  for (const int64_t keys : {1, 16, 37, 128}) {
    std::vector<float> scores = random_floats(128, static_cast<uint64_t>(keys), 20.0f);
    scores[keys / 2] = -INFINITY;
    std::vector<float> expected = scores;
    std::vector<uint16_t> weights(128, 1);
    float maximum = 3, sum = 2, out[2] = {4, 6};
    float expected_maximum = 3, expected_sum = 2, expected_out[2] = {4, 6};
    softmax_block_bf16({scores.data(), 128, 1, keys}, {&maximum, &sum, out, 2, 2}, weights.data(),
                       128);
    softmax_block({expected.data(), 128, 1, keys},
                  {&expected_maximum, &expected_sum, expected_out, 2, 2});
    EXPECT_EQ(maximum, expected_maximum);
    EXPECT_NEAR(sum, expected_sum, 1e-6 * expected_sum);
    EXPECT_NEAR(out[1], expected_out[1], 1e-6);
    for (int64_t j = 0; j < (keys + 15) / 16 * 16; ++j)
      EXPECT_NEAR(bf16_to_float(weights[j]), expected[j], 1.01 * 0x1p-8 * expected[j]) << j;
  }
}

TEST(SoftmaxBlockBf16, FactorsMultiplyWeightsAndNotSums) {
  if (!has_native_bf16()) GTEST_SKIP() << "no AVX512-BF16";
  constexpr int64_t keys = 19;
  std::vector<float> scores(32, 0), factors(keys);
  for (int64_t j = 0; j < keys; ++j) factors[j] = static_cast<float>(j);
  std::vector<uint16_t> weights(32, 1);
  float maximum = 0, sum = 1, out = 7;
  softmax_block_bf16({scores.data(), 32, 1, keys}, {&maximum, &sum, &out, 1, 1}, weights.data(), 32,
                     factors.data());
  EXPECT_EQ(sum, 1.0f + keys);
  for (int64_t j = 0; j < 32; ++j)
    EXPECT_EQ(bf16_to_float(weights[j]), j < keys ? factors[j] : 0.0f) << j;
}

TEST(SoftmaxBlockBf16, NaNStaysAndRowsThatSeeNothingStayEmpty) {
  if (!has_native_bf16()) return;
  std::vector<float> scores(32, -INFINITY);
  std::vector<uint16_t> weights(32, 1);
  float maxima[2] = {-INFINITY, -INFINITY}, sums[2] = {0, 0}, out[2] = {0, 0};
  scores[16] = std::nanf("");
  softmax_block_bf16({scores.data(), 16, 2, 16}, {maxima, sums, out, 1, 1}, weights.data(), 16);
  EXPECT_EQ(sums[0], 0.0f);
  EXPECT_EQ(weights[3], 0);
  EXPECT_TRUE(std::isnan(sums[1]));
}

TEST(Vocabulary, SumsAndMaximaOfEveryLength) {
  for (const int64_t count : {1, 7, 8, 16, 17, 1023, 1024, 1025, 50000}) {
    const std::vector<float> values = random_floats(count, 1, 5.0f);
    const int64_t best = argmax(values.data(), count);
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_TRUE(values[i] < values[best] || (values[i] == values[best] && i >= best));
      sum += std::exp((double{values[i]} - values[best]) * 0.5);
    }
    EXPECT_NEAR(sum_exp(values.data(), count, values[best], 0.5f), sum, 1e-6 * sum);
  }
}

}  // namespace
}  // namespace pecia::test
