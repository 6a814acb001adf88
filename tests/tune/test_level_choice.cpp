// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <numeric>

#include "lib/tune/level_choice.hpp"

namespace pecia::tune {
namespace {

using parallel::Geometry;
using parallel::Levels;
using testing::DoubleNear;
using testing::ElementsAre;

auto near(double value) {
  return DoubleNear(value, 1e-12);
}

TEST(LevelShares, OfRanksAloneAndAll) {
  EXPECT_THAT(level_shares(Levels(4, {{0, 0, 0, 0}}), Geometry::disjoint),
              ElementsAre(near(0.25), near(0.75)));
  EXPECT_THAT(level_shares(Levels(4, {{0, 0, 0, 0}}), Geometry::nested),
              ElementsAre(near(0.25), near(1)));
}

TEST(LevelShares, OfServersBetween) {
  // Of 16 squares and halves of squares: 2 in the parts, 2 between ranks of a server, 4 · 2 others.
  const Levels levels(4, {{0, 0, 1, 1}, {0, 0, 0, 0}});
  EXPECT_THAT(level_shares(levels, Geometry::disjoint),
              ElementsAre(near(0.25), near(0.25), near(0.5)));
  EXPECT_THAT(level_shares(levels, Geometry::nested), ElementsAre(near(0.25), near(0.5), near(1)));
}

TEST(LevelShares, OfDisjointLevelsAddUpToOne) {
  for (int ranks = 1; ranks <= 16; ++ranks)
    for (int wanted = 1; wanted <= 4; ++wanted) {
      const std::vector<int> together(ranks);
      const auto shares =
          level_shares(parallel::levels_of(together, together, wanted), Geometry::disjoint);
      if (wanted == 1 && ranks > 1) continue;  // far pairs are at no level
      EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12) << ranks;
    }
}

TEST(Attended, CountsTheKeptPairsOfEachLevel) {
  const std::vector<double> shares{0.25, 0.25, 0.5};
  EXPECT_NEAR(attended(shares, 0), 1, 1e-12);
  EXPECT_NEAR(attended(shares, 0.2), 0.25 + 0.25 * 0.64 + 0.5 * 0.16, 1e-12);
}

TEST(Find, GivesTheChoiceOfACount) {
  const std::vector<LevelChoice> choices{{Levels(2, {{0, 0}}), {0.5, 0.5}}};
  EXPECT_EQ(find(choices, 2), &choices[0]);
  EXPECT_EQ(find(choices, 3), nullptr);
}

}  // namespace
}  // namespace pecia::tune
