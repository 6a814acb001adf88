// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/simulation/tune/level_choice.hpp"

namespace pecia::tune {
namespace {

TEST(Find, GivesTheChoiceOfACount) {
  const std::vector<LevelChoice> choices{
      {parallel::Levels(2, {{0, 0}}), parallel::Geometry::disjoint}};
  EXPECT_EQ(find(choices, 2), &choices[0]);
  EXPECT_EQ(find(choices, 3), nullptr);
  EXPECT_EQ(choices[0].loads.size(), 1U);
}

}  // namespace
}  // namespace pecia::tune
