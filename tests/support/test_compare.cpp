// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <set>

#include "tests/support/compare.hpp"

namespace pecia::test {
namespace {

TEST(AllClose, AcceptsEqualAndNear) {
  EXPECT_TRUE(all_close(std::vector{1.f, INFINITY, -0.f}, std::vector{1.f, INFINITY, 0.f}, 0));
  EXPECT_TRUE(all_close(std::vector{1.001f}, std::vector{1.f}, 0, 0.01));
}

TEST(AllClose, FindsOneWrongElement) {
  EXPECT_FALSE(all_close(std::vector{1.f, 2.f, 3.1f}, std::vector{1.f, 2.f, 3.f}, 0.05));
}

TEST(AllClose, NaNNeverPassesForANumber) {
  EXPECT_FALSE(all_close(std::vector{NAN}, std::vector{0.f}, 1e9));
  EXPECT_FALSE(all_close(std::vector{0.f}, std::vector{NAN}, 1e9));
  EXPECT_FALSE(all_close(std::vector{INFINITY}, std::vector{0.f}, 1e9, 1e9));
  EXPECT_FALSE(all_close(std::vector{-INFINITY}, std::vector{INFINITY}, 1e9, 1e9));
}

TEST(AllClose, SizesMustAgree) {
  EXPECT_FALSE(all_close(std::vector{1.f}, std::vector<float>{}, 1));
}

TEST(RandomFloats, AreNotConstantAndDependOnTheSeed) {
  const auto values = random_floats(1000, 1);
  EXPECT_GT(std::set<float>(values.begin(), values.end()).size(), 990u);
  EXPECT_NE(values, random_floats(1000, 2));
  EXPECT_EQ(values, random_floats(1000, 1));
}

}  // namespace
}  // namespace pecia::test
