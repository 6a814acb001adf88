// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/schedule/row_times.hpp"

namespace pecia::schedule {
namespace {

PassWork pass_of(double rows) {
  return {.passes = 1, .rows = rows, .pairs = 100 * rows};
}

// A pass takes 10 ms, a row 1 ms, and a row's pairs 0.1 ms.
const PassRates estimate{.pass_s = 10e-3, .row_s = 1e-3, .pair_s = 1e-6};

TEST(RowTimes, AreTheEstimateWhereNothingWasMeasured) {
  const RowTimes times(estimate);
  EXPECT_DOUBLE_EQ(times.seconds(pass_of(1)), 11.1e-3);
  EXPECT_DOUBLE_EQ(times.seconds(pass_of(100)), 120e-3);
  EXPECT_FALSE(times.knows(1));
}

TEST(RowTimes, FollowWhatIsMeasuredByRows) {
  RowTimes times(estimate);
  for (int i = 0; i < 20; ++i) {
    times.add(pass_of(8), 2 * 18.8e-3);
    times.add(pass_of(9), 4 * 19.9e-3);
  }
  EXPECT_NEAR(times.seconds(pass_of(8)), 2 * 18.8e-3, 1e-9) << "a step between two kernels";
  EXPECT_NEAR(times.seconds(pass_of(9)), 4 * 19.9e-3, 1e-9);
  EXPECT_NEAR(times.seconds(pass_of(1)), 2 * 11.1e-3, 1e-9) << "below, the factor stays";
  EXPECT_NEAR(times.seconds(pass_of(64)), 4 * 80.4e-3, 1e-9) << "above, too";
}

TEST(RowTimes, GoStraightBetweenMeasuredRows) {
  RowTimes times(estimate);
  times.add(pass_of(2), 1 * 12.2e-3);
  times.add(pass_of(6), 3 * 16.6e-3);
  EXPECT_NEAR(times.seconds(pass_of(4)), 2 * 14.4e-3, 1e-9);
}

TEST(RowTimes, OneSlowPassCountsLittleAndAChangeCountsSoon) {
  RowTimes times(estimate);
  for (int i = 0; i < 20; ++i) times.add(pass_of(1), 11.1e-3);
  times.add(pass_of(1), 1000 * 11.1e-3);
  EXPECT_LT(times.seconds(pass_of(1)), 1.2 * 11.1e-3);
  for (int i = 0; i < 40; ++i) times.add(pass_of(1), 1.5 * 11.1e-3);
  EXPECT_NEAR(times.seconds(pass_of(1)), 1.5 * 11.1e-3, 0.01 * 11.1e-3);
}

TEST(RowTimes, KnowRowsThatWereMeasuredTwiceAndNotLongAgo) {
  RowTimes times(estimate);
  times.add(pass_of(16), 0.1);
  EXPECT_FALSE(times.knows(16));
  times.add(pass_of(16), 0.1);
  for (const double rows : {13, 16, 20}) EXPECT_TRUE(times.knows(rows)) << rows;
  for (const double rows : {1, 8, 32}) EXPECT_FALSE(times.knows(rows)) << rows;
  for (int i = 0; i < 300; ++i) times.add(pass_of(64), 0.1);
  EXPECT_FALSE(times.knows(16)) << "long ago";
  EXPECT_TRUE(times.knows(64));
}

TEST(RowTimes, AnyNumberOfRowsHasATime) {
  RowTimes times(estimate);
  times.add(pass_of(3), 1);
  for (double rows = 1; rows < 1e9; rows *= 1.7) EXPECT_GT(times.seconds(pass_of(rows)), 0) << rows;
  times.add(pass_of(1e12), 1);
  times.add(pass_of(2), 0);  // a clock that stood still
  EXPECT_GT(times.seconds(pass_of(2)), 0);
}

}  // namespace
}  // namespace pecia::schedule
