// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "lib/model/attention/token_shares.hpp"

namespace pecia::attention {
namespace {

TEST(HeadShares, SumWhatTheLeastTokensReceive) {
  std::vector<float> numbers(100);
  std::iota(numbers.rbegin(), numbers.rend(), 0.0f);  // 99, 98, …, 0
  HeadShares shares;
  shares.add(numbers);
  EXPECT_EQ(shares.tokens, 100);
  EXPECT_EQ(shares.sum, 4950);
  EXPECT_EQ(shares.below[0], 0);
  EXPECT_EQ(shares.below[1], 0 + 1) << "two of a hundred";
  EXPECT_EQ(shares.below[25], 49 * 50 / 2);
  EXPECT_EQ(shares.below[50], 4950);
  EXPECT_NEAR(shares.lost()[25], 1225.0 / 4950, 1e-12);
  EXPECT_NEAR(shares.spread(), std::sqrt((100.0 * 100 - 1) / 12) / 49.5, 1e-12);
}

TEST(HeadShares, MayBeAddedOverParts) {
  std::vector<float> a{1, 4, 2}, b{7, 0}, none;
  HeadShares one, other;
  one.add(a), one.add(none), other.add(b);
  one += other;
  EXPECT_EQ(one.tokens, 5);
  EXPECT_EQ(one.sum, 14);
  EXPECT_EQ(one.squares, 1 + 16 + 4 + 49);
  EXPECT_EQ(one.below[25], 1 + 0) << "one of three, and one of two";
}

TEST(HeadShares, TakeNoNumberForNone) {
  std::vector<float> numbers{std::numeric_limits<float>::quiet_NaN(), 3, -1};
  HeadShares shares;
  shares.add(numbers);
  EXPECT_EQ(shares.sum, 3);
  EXPECT_EQ(HeadShares{}.spread(), 0);
  EXPECT_EQ(HeadShares{}.lost()[50], 0);
}

TEST(TokenShares, AddRanksWithOtherHeads) {
  TokenShares a{2, std::vector<HeadShares>(4)}, b = a, none;
  a.at(1, 0).sum = 1, b.at(1, 1).sum = 2;
  none += a;
  none += b;
  EXPECT_EQ(none.heads, 2);
  EXPECT_EQ(none.at(1, 0).sum, 1);
  EXPECT_EQ(none.at(1, 1).sum, 2);
}

}  // namespace
}  // namespace pecia::attention
