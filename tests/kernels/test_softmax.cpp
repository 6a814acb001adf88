// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/attention/softmax.hpp"
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
