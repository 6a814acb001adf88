// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "lib/base/core/error.hpp"
#include "lib/base/core/random.hpp"
#include "lib/ranks/parallel/stages.hpp"

namespace pecia::parallel {
namespace {

using testing::ElementsAre;
using Ranges = std::vector<RowRange>;

TEST(Stages, HaveRanksWithTheSamePlaces) {
  const StagePlace place = stage_place(3, 6, 3);
  EXPECT_EQ(place.stage, 1);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.ranks, 2);
  EXPECT_EQ(place.rank_in(0), 1);
  EXPECT_EQ(place.rank_in(2), 5);
  EXPECT_FALSE(place.is_first());
  EXPECT_FALSE(place.is_last());
  EXPECT_TRUE(stage_place(0, 1, 1).is_first() && stage_place(0, 1, 1).is_last());
  EXPECT_THROW(stage_place(0, 6, 4), InvalidArgument);
  EXPECT_THROW(stage_place(6, 6, 3), InvalidArgument);
}

TEST(Stages, HaveEachLayerOnce) {
  for (int layers = 1; layers <= 9; ++layers)
    for (int stages = 1; stages <= layers; ++stages) {
      const auto ranges = balanced_stages(std::vector<double>(layers, 1.0), stages);
      ASSERT_TRUE(ranges.has_value());
      ASSERT_EQ(std::ssize(*ranges), stages);
      int64_t next = 0;
      for (const RowRange& range : *ranges) {
        EXPECT_EQ(range.begin, next);
        EXPECT_THAT(range.size(), testing::AllOf(testing::Ge(layers / stages),
                                                 testing::Le((layers + stages - 1) / stages)));
        next = range.end;
      }
      EXPECT_EQ(next, layers);
    }
}

TEST(Stages, CountEmbeddingAndHead) {
  const std::vector<double> equal(8, 1.0);
  EXPECT_EQ(*balanced_stages(equal, 2, 0, 2), (Ranges{{0, 5}, {5, 8}}));
  EXPECT_EQ(*balanced_stages(equal, 2, 2, 0), (Ranges{{0, 3}, {3, 8}}));
  EXPECT_EQ(*balanced_stages(std::vector<double>(4, 2.0), 2, 0, 2), (Ranges{{0, 2}, {2, 4}}));
  EXPECT_EQ(*balanced_stages(equal, 4, 0, 100), (Ranges{{0, 2}, {2, 4}, {4, 7}, {7, 8}}))
      << "a stage has a layer at least, and the others are even";
}

TEST(Stages, CostNoMoreThanAnyOtherCut) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    uint64_t drawn = 0;
    const auto draw = [&] { return uniform(seed, drawn++); };
    const int layers = 3 + static_cast<int>(6 * draw());
    std::vector<double> costs;
    for (int layer = 0; layer < layers; ++layer) costs.push_back(draw());
    const double first = draw(), last = 3 * draw();
    const auto most_of = [&](int64_t a, int64_t b) {
      const auto sum = [&](int64_t begin, int64_t end) {
        return std::accumulate(costs.begin() + begin, costs.begin() + end, 0.0);
      };
      return std::max({first + sum(0, a), sum(a, b), sum(b, layers) + last});
    };
    double least = std::numeric_limits<double>::infinity();
    for (int64_t a = 1; a < layers - 1; ++a)
      for (int64_t b = a + 1; b < layers; ++b) least = std::min(least, most_of(a, b));
    const auto found = balanced_stages(costs, 3, first, last);
    ASSERT_TRUE(found.has_value());
    EXPECT_NEAR(most_of((*found)[0].end, (*found)[1].end), least, 1e-12 * layers);
  }
}

TEST(Stages, HaveRangesThatAreAllowed) {
  const std::vector<double> equal(6, 1.0);
  const auto even = [](const RowRange& range) { return range.begin % 4 == 0; };
  EXPECT_EQ(*balanced_stages(equal, 2, 0, 0, even), (Ranges{{0, 4}, {4, 6}}));
  EXPECT_FALSE(balanced_stages(equal, 3, 0, 0, even).has_value());
  EXPECT_FALSE(balanced_stages(equal, 7).has_value()) << "more stages than layers";
  EXPECT_FALSE(balanced_stages(equal, 1, 0, 0, [](const RowRange&) { return false; }).has_value());
}

}  // namespace
}  // namespace pecia::parallel
