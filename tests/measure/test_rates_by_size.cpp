// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/settle/measure/rates_by_size.hpp"

namespace pecia::measure {
namespace {

using cluster_files::Axis;

/// Rates of a machine on which rows and depth count apart from each other.
double rate(double rows, double depth) {
  return 1000 * (rows / (rows + 4)) * (depth / (depth + 100));
}

RatesBySize rates_along(Axis axis, std::initializer_list<double> sizes, double reference,
                        double other) {
  RatesBySize rates{{axis, {}}, reference};
  for (const double size : sizes)
    rates.curve.points.push_back(
        {size, axis == Axis::rows ? rate(size, other) : rate(other, size)});
  return rates;
}

TEST(RatesBySize, SharesGiveTheMeasuredRatesAgain) {
  const auto rows = {1.0, 8.0, 64.0}, depths = {64.0, 512.0, 4096.0};
  const double peak = rate(64, 4096);
  const cluster_files::Efficiency shares = shares_of(
      {rates_along(Axis::rows, rows, 8, 512), rates_along(Axis::depth, depths, 512, 8)}, peak, 0.5);
  EXPECT_EQ(shares.factor, 0.5);
  for (const double r : rows)
    for (const double d : depths)
      EXPECT_NEAR(shares.of({.rows = r, .depth = d}) * peak, 0.5 * rate(r, d), 0.005 * rate(r, d))
          << r << " rows of depth " << d;
  for (const cluster_files::Curve& curve : shares.curves)
    for (const auto& [size, share] : curve.points) EXPECT_LE(share, 1) << size;
}

TEST(RatesBySize, SharesAreWhatAFileTakes) {
  EXPECT_EQ(share_of(2, 1), 1);
  EXPECT_EQ(share_of(1e-9, 1), 0.001);
  EXPECT_EQ(share_of(0.123456, 1), 0.123);
}

}  // namespace
}  // namespace pecia::measure
