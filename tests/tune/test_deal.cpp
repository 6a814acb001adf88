// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "lib/base/core/error.hpp"
#include "lib/base/core/random.hpp"
#include "lib/simulation/tune/deal.hpp"
#include "tests/tune/made_up.hpp"

namespace pecia::tune {
namespace {

using testing::DoubleEq;
using testing::Each;
using testing::ElementsAre;

TEST(Deal, EvenGivesAllLayersTheSame) {
  const LayerTokens layers(4, {made_up_head(2), made_up_head(5)});
  EXPECT_EQ(dealt(Deal::even, layers, 0.3), (parallel::LayerDrops{{0}, {0.3}, {0.3}, {0}}));
}

TEST(Deal, SpreadIsInProportion) {
  const LayerTokens layers{
      {made_up_head(9)}, {made_up_head(1)}, {made_up_head(3)}, {made_up_head(9)}};
  const auto drops = dealt(Deal::spread, layers, 0.2);
  EXPECT_THAT(drops.front(), ElementsAre(0));
  EXPECT_THAT(drops.back(), ElementsAre(0));
  EXPECT_NEAR(drops[1][0], 0.1, 1e-9);
  EXPECT_NEAR(drops[2][0], 0.3, 1e-9);
  // Where the largest would be beyond the highest, the others take the rest.
  const auto most = dealt(Deal::spread, layers, 0.8);
  EXPECT_NEAR(most[2][0], highest_dealt, 1e-9);
  EXPECT_NEAR(most[1][0], 0.66, 1e-9);
}

/// The attention that all heads lose together.
double lost(const LayerTokens& layers, const parallel::LayerDrops& drops) {
  double sum = 0;
  for (size_t layer = 1; layer + 1 < layers.size(); ++layer)
    for (size_t head = 0; head < layers[layer].size(); ++head) {
      const double drop = drops[layer].size() == 1 ? drops[layer][0] : drops[layer][head];
      sum += layers[layer][head].lost[static_cast<size_t>(std::llround(drop * deal_steps))];
    }
  return sum;
}

/// Numbers of tokens that are drawn at random, sorted.
HeadTokens random_head(uint64_t draw) {
  constexpr int tokens = 500;
  std::vector<double> numbers;
  const double power = 1 + 9 * uniform(draw, 0);
  for (int i = 1; i <= tokens; ++i)
    numbers.push_back(std::pow(uniform(draw, static_cast<uint64_t>(i)), power));
  std::ranges::sort(numbers);
  const double all = std::accumulate(numbers.begin(), numbers.end(), 0.0);
  HeadTokens head{power, {}};
  for (int step = 0; step <= deal_steps; ++step)
    head.lost.push_back(
        std::accumulate(numbers.begin(), numbers.begin() + step * tokens / deal_steps, 0.0) / all);
  return head;
}

TEST(Deal, MassLosesLeastOfAllDealsOfTheSameMean) {
  for (uint64_t draw = 0; draw < 20; ++draw) {
    LayerTokens layers;
    for (uint64_t layer = 0; layer < 5; ++layer)
      layers.push_back({random_head(draw * 100 + layer), random_head(draw * 100 + layer + 50)});
    for (const double drop : {0.02, 0.2, 0.5, 0.8}) {
      const auto by_mass = dealt(Deal::mass, layers, drop);
      EXPECT_NEAR(parallel::mean_drop(by_mass), drop, 1e-9);
      EXPECT_LE(lost(layers, by_mass), lost(layers, dealt(Deal::even, layers, drop)) + 1e-12);
      // No step of one head for a step of another is better.
      for (size_t from = 2; from < 8; ++from)
        for (size_t to = 2; to < 8; ++to) {
          auto other = by_mass;
          double &less = other[from / 2][from % 2], &more = other[to / 2][to % 2];
          if (from == to || less < 0.01 || more > highest_dealt - 0.01) continue;
          less -= 0.02, more += 0.02;
          EXPECT_GE(lost(layers, other), lost(layers, by_mass) - 1e-12);
        }
    }
  }
}

TEST(Deal, LeavesOutLayersWithoutNumbers) {
  LayerTokens layers(5, {made_up_head(2), made_up_head(2)});
  layers[2] = {HeadTokens{0, std::vector<double>(deal_steps + 1)},
               HeadTokens{0, std::vector<double>(deal_steps + 1)}};  // a layer with a window
  for (const Deal deal : {Deal::spread, Deal::mass}) {
    const auto drops = dealt(deal, layers, 0.4);
    EXPECT_THAT(drops[2], ElementsAre(0));
    for (const size_t layer : {1, 3})
      EXPECT_THAT(drops[layer], Each(testing::DoubleNear(0.4, 1e-9)));
  }
}

TEST(Deal, RefusesTooFewLayersAndNumbers) {
  EXPECT_THROW(dealt(Deal::mass, LayerTokens(2, {made_up_head(1)}), 0.1), InvalidArgument);
  LayerTokens layers(3, {made_up_head(1)});
  layers[1][0].lost.pop_back();
  EXPECT_THROW(dealt(Deal::mass, layers, 0.1), InvalidArgument);
}

TEST(Deals, KnowTheDropsThatWereGiven) {
  const LayerTokens layers(3, {made_up_head(2)});
  const Deals deals(layers, {0.1, 0.34});
  EXPECT_EQ(deals.of(Deal::mass, 0.34), dealt(Deal::mass, layers, 0.34));
  EXPECT_THROW(deals.of(Deal::mass, 0.2), InvalidArgument);
}

TEST(Deal, HasNames) {
  for (const Deal deal : {Deal::even, Deal::spread, Deal::mass})
    EXPECT_EQ(deal_of(name_of(deal)), deal);
  EXPECT_EQ(deal_of("odd"), std::nullopt);
}

TEST(TimeModel, SumsTheLayersOfADeal) {
  const Tuned tuned = made_up_with_deals();
  TimeModel model = made_up_times();
  model.facts.deals = tuned.facts.deals;
  const LevelChoice& choice = tuned.levels[0];
  const double even = model.ttft_s(4000, {0.4, 2}, choice);
  const double by_mass = model.ttft_s(4000, {0.4, 2, {1}, Deal::mass}, choice);
  EXPECT_NE(by_mass, even) << "layers that drop more do not make up for those that drop less";
  EXPECT_NEAR(by_mass, even, 0.2 * even);
  double before = by_mass;
  for (double drop = 0.42; drop < 0.9; drop += 0.02) {
    const double now = model.ttft_s(4000, {drop, 2, {1}, Deal::mass}, choice);
    EXPECT_LE(now, before);
    before = now;
  }
  EXPECT_EQ(model.ttft_s(4000, {0, 2, {1}, Deal::mass}, choice),
            model.ttft_s(4000, {0, 2}, choice));
}

}  // namespace
}  // namespace pecia::tune
