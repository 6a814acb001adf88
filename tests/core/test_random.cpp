// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "lib/base/core/random.hpp"

namespace pecia {
namespace {

// Known answers of the authors' library (Random123, kat_vectors).
TEST(Philox, MeetsTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Uniform, IsUniform) {
  double sum = 0, sum_squares = 0;
  const int count = 100000;
  for (int i = 0; i < count; ++i) {
    const double value = uniform(42, i);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value, sum_squares += value * value;
  }
  EXPECT_NEAR(sum / count, 0.5, 5 / std::sqrt(12.0 * count));
  EXPECT_NEAR(sum_squares / count, 1.0 / 3, 0.005);
}

TEST(Uniform, DependsOnAllBitsOfKeyAndIndex) {
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(uniform(0, uint64_t{1} << bit), uniform(0, 0)) << "index bit " << bit;
    EXPECT_NE(uniform(uint64_t{1} << bit, 0), uniform(0, 0)) << "key bit " << bit;
  }
}

TEST(Mix, DependsOnEverything) {
  EXPECT_NE(mix(0, "a"), mix(0, "b"));
  EXPECT_NE(mix(0, "a"), mix(1, "a"));
  EXPECT_NE(mix(0, uint64_t{1}), mix(1, uint64_t{0}));
}

}  // namespace
}  // namespace pecia
