// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "lib/settle/measure/gain_alone.hpp"

namespace pecia::measure {
namespace {

/// `count` stretches of each kind.
Stretches stretches_of(double together_s, double alone_s, int count = 20) {
  return {std::vector<double>(count, together_s), std::vector<double>(count, alone_s)};
}

TEST(GainAlone, IsTheRatioOfTheTwo) {
  EXPECT_DOUBLE_EQ(gain_alone(stretches_of(1.6, 1)), 1.6);
  EXPECT_DOUBLE_EQ(gain_alone(stretches_of(1.6, 1, 1)), 1.6);
  EXPECT_EQ(gain_alone(stretches_of(1, 1.2)), 1) << "nobody is slower alone";
}

/// Means of all would give 3.
TEST(GainAlone, IsNotMovedByLostMoments) {
  Stretches lost = stretches_of(1.6, 1);
  lost.alone_s[3] = 30;
  lost.together_s[7] = 90, lost.together_s[8] = 30;
  EXPECT_DOUBLE_EQ(gain_alone(lost), 1.6);
}

/// Half of the time the others are in the way, and half of the time they are not.
TEST(GainAlone, LiesBetweenThatOfTwoKindsOfMinutes) {
  Stretches both = stretches_of(1.6, 1);
  both.add(stretches_of(1, 1));
  EXPECT_DOUBLE_EQ(gain_alone(both), 1.3);
}

TEST(GainAlone, WantsStretchesOfEach) {
  EXPECT_THROW(gain_alone({{1}, {}}), Error);
  EXPECT_THROW(gain_alone({{}, {1}}), Error);
}

TEST(LastingShare, CountsLostMoments) {
  Stretches lost = stretches_of(1, 1, 4);
  EXPECT_EQ(lasting_share(lost, 1), 1);
  lost.together_s[2] = 5;
  EXPECT_DOUBLE_EQ(lasting_share(lost, 1), 0.5);
  EXPECT_EQ(lasting_share(lost, 3), 1) << "a share";
  EXPECT_THROW(lasting_share({}, 1), Error);
}

}  // namespace
}  // namespace pecia::measure
