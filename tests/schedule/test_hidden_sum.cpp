// SPDX-License-Identifier: Apache-2.0
/// Sums of hidden states against double sums; the same bits in any order and any parts.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "lib/base/core/archive.hpp"
#include "lib/engine/schedule/hidden_sum.hpp"

namespace pecia::schedule {
namespace {

constexpr int64_t width = 7;

std::vector<float> rows_of(int64_t rows, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.3f, 2);
  std::vector<float> values(rows * width);
  for (float& value : values) value = normal(random);
  return values;
}

HiddenSum sum_of(std::span<const float> values) {
  HiddenSum sum;
  sum.add(values, width);
  return sum;
}

TEST(HiddenSum, IsTheMeanOfTheRows) {
  const auto values = rows_of(301, 1);
  const std::vector<float> found = sum_of(values).mean(0.5, false);
  ASSERT_EQ(found.size(), width);
  for (int64_t i = 0; i < width; ++i) {
    double wanted = 0;
    for (int64_t row = 0; row < 301; ++row) wanted += values[row * width + i];
    wanted *= 0.5 / 301;
    // Rounding of each number to 2^-33, of the mean to fp32.
    EXPECT_NEAR(found[i], wanted, 0x1p-33 + std::abs(wanted) * 0x1p-24);
  }
}

TEST(HiddenSum, HasLengthOneWhereAskedAndStaysZero) {
  double squares = 0;
  for (const float value : sum_of(rows_of(3, 2)).mean(1, true)) squares += value * value;
  EXPECT_NEAR(squares, 1, width * 0x1p-23);
  EXPECT_EQ(sum_of(std::vector<float>(width)).mean(1, true), std::vector<float>(width));
}

TEST(HiddenSum, OfOneRowIsTheRow) {
  const std::vector<float> row{1.5f, -3, 0, 0x1p-8f, 0x1.fffffep-8f, 1000.25f, -524287.5f};
  EXPECT_EQ(sum_of(row).mean(1, false), row);
}

TEST(HiddenSum, HasTheSameBitsInAnyOrder) {
  const auto values = rows_of(100, 3);
  const auto wanted = sum_of(values).mean(1, true);
  for (const int64_t cut : {1, 37, 99}) {
    const auto first = std::span(values).first(cut * width),
               rest = std::span(values).subspan(cut * width);
    HiddenSum backwards = sum_of(rest);
    backwards.add(sum_of(first));
    EXPECT_EQ(backwards.count(), 100);
    EXPECT_EQ(backwards.mean(1, true), wanted);
  }
}

TEST(HiddenSum, IsBrokenByWhatIsNoNumberOrTooLarge) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::infinity(), HiddenSum::least_too_large}) {
    auto values = rows_of(5, 4);
    values[17] = bad;
    HiddenSum sum = sum_of(rows_of(2, 5));
    EXPECT_FALSE(sum.broken());
    sum.add(sum_of(values));
    EXPECT_TRUE(sum.broken()) << bad;
  }
}

TEST(HiddenSum, IsBrokenWhereItOverflows) {
  HiddenSum sum = sum_of(std::vector<float>(width, 500000.f));
  for (int doubling = 0; doubling < 11; ++doubling) sum.add(HiddenSum(sum));
  EXPECT_FALSE(sum.broken());  // 2^11 · 500000 · 2^32 < 2^63
  sum.add(HiddenSum(sum));
  sum.add(HiddenSum(sum));
  EXPECT_TRUE(sum.broken());
}

TEST(HiddenSum, TravelsWhole) {
  const HiddenSum sum = sum_of(rows_of(9, 6));
  const auto back = from_bytes<HiddenSum>(to_bytes(sum));
  EXPECT_EQ(back.count(), 9);
  EXPECT_EQ(back.mean(1, false), sum.mean(1, false));
}

}  // namespace
}  // namespace pecia::schedule
