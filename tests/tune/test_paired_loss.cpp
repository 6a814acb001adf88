// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "lib/base/core/error.hpp"
#include "lib/base/core/random.hpp"
#include "lib/simulation/tune/paired_loss.hpp"

namespace pecia::tune {
namespace {

TEST(PairedLoss, IsTheMeanDifference) {
  EXPECT_DOUBLE_EQ(paired_loss(std::vector<double>{1, 2, 3}, std::vector<double>{2, 2, 6}).mean,
                   4.0 / 3);
  EXPECT_EQ(paired_loss(std::vector<double>{1, 2, 3}, std::vector<double>{2, 2, 6}).error, 0);
}

TEST(PairedLoss, HasTheErrorOfIndependentDifferences) {
  constexpr int tokens = 64 * 400;
  const std::vector<double> dense(tokens, 3);
  std::vector<double> sparse;
  for (int i = 0; i < tokens; ++i) sparse.push_back(2.5 + uniform(1, i));
  const double of_one = std::sqrt(1.0 / 12);
  EXPECT_NEAR(paired_loss(dense, sparse).error, of_one / std::sqrt(tokens), 2e-4);
}

TEST(PairedLoss, CountsNeighboursThatMoveTogetherAsOne) {
  std::vector<double> dense(64 * 100, 3), sparse;
  for (size_t i = 0; i < dense.size(); ++i) sparse.push_back(2.5 + uniform(1, i / 64));
  EXPECT_NEAR(paired_loss(dense, sparse).error, std::sqrt(1.0 / 12) / 10, 3e-3);
}

TEST(PairedLoss, RefusesTextsOfOtherLengths) {
  EXPECT_THROW(paired_loss({}, {}), InvalidArgument);
  EXPECT_THROW(paired_loss(std::vector<double>{1}, std::vector<double>{1, 2}), InvalidArgument);
}

}  // namespace
}  // namespace pecia::tune
