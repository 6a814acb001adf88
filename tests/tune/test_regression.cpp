// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "lib/base/core/error.hpp"
#include "lib/base/core/random.hpp"
#include "lib/simulation/tune/regression.hpp"

namespace pecia::tune {
namespace {

/// Random terms of very different sizes.
std::vector<std::vector<double>> random_rows(size_t count, const std::vector<double>& sizes) {
  std::vector<std::vector<double>> rows(count);
  uint64_t index = 0;
  for (auto& row : rows)
    for (const double size : sizes) row.push_back(size * uniform(7, index++));
  return rows;
}

std::vector<double> sums(const std::vector<std::vector<double>>& rows,
                         const std::vector<double>& coefficients) {
  std::vector<double> all;
  for (const auto& row : rows) {
    double& sum = all.emplace_back(0);
    for (size_t i = 0; i < row.size(); ++i) sum += coefficients[i] * row[i];
  }
  return all;
}

TEST(FitNonnegative, FindsTheCoefficientsOfASum) {
  const std::vector<double> sizes{1, 1e4, 1e8, 1e-3};
  const auto rows = random_rows(40, sizes);
  const std::vector<double> wanted{0.25, 3e-4, 7e-9, 0};
  const auto found = fit_nonnegative(rows, sums(rows, wanted));
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(found[i] * sizes[i], wanted[i] * sizes[i], 1e-9) << "coefficient " << i;
}

TEST(FitNonnegative, LeavesOutWhatWouldBeNegative) {
  const auto rows = random_rows(40, {1, 1});
  const auto found = fit_nonnegative(rows, sums(rows, {1, -0.2}));
  EXPECT_GT(found[0], 0.5);
  EXPECT_EQ(found[1], 0);
}

TEST(FitNonnegative, GivesTermsThatAreAlwaysZeroNothing) {
  const auto found = fit_nonnegative({{1, 0}, {2, 0}}, {2, 4}, 1e-9);
  EXPECT_NEAR(found[0], 2, 1e-6);
  EXPECT_EQ(found[1], 0);
}

TEST(FitNonnegative, RidgeSharesAmongTermsThatAreTheSame) {
  const auto found = fit_nonnegative({{1, 1}, {2, 2}, {3, 3}}, {2, 4, 6}, 1e-3);
  EXPECT_NEAR(found[0], 1, 1e-2);
  EXPECT_NEAR(found[1], found[0], 1e-9);
}

TEST(FitNonnegative, RefusesRowsThatDoNotMatch) {
  EXPECT_THROW(fit_nonnegative({}, {}), InvalidArgument);
  EXPECT_THROW(fit_nonnegative({{1}}, {1, 2}), InvalidArgument);
  EXPECT_THROW(fit_nonnegative({{1}, {1, 2}}, {1, 2}), InvalidArgument);
}

TEST(ErrorOf, SaysMeansAndWhatTheSamplesOwnErrorsMake) {
  const FitError error = error_of({{1.1, 1, 0.1}, {1.5, 2, 0.3}, {0.003, -0.001, 0}});
  EXPECT_EQ(error.samples, 3);
  EXPECT_NEAR(error.mean_absolute, (0.1 + 0.5 + 0.004) / 3, 1e-12);
  EXPECT_NEAR(error.accuracy, 1 - 0.604 / 3.001, 1e-12);
  EXPECT_NEAR(error.noise, std::sqrt(2 / std::numbers::pi) * 0.4 / 3, 1e-12);
  EXPECT_EQ(error_of({}).accuracy, 0);
  EXPECT_EQ(error_of({{1, 0, 0}}).accuracy, 0);
}

}  // namespace
}  // namespace pecia::tune
