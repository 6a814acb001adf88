// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "lib/base/core/error.hpp"
#include "lib/base/core/random.hpp"
#include "lib/ranks/parallel/level_plan.hpp"
#include "lib/ranks/parallel/level_time.hpp"

namespace pecia::parallel {
namespace {

TEST(Pipeline, IsTheOwnPartAloneWithoutSteps) {
  EXPECT_EQ(pipeline_s(3, {}), 3);
}

TEST(Pipeline, OverlapsTransfersWithAttention) {
  EXPECT_EQ(pipeline_s(5, {{1, 2, 1}}), 5 + 2 + 1);  // tokens hide under the own part
  EXPECT_EQ(pipeline_s(1, {{4, 2, 1}}), 4 + 2 + 1);  // they do not
  EXPECT_EQ(pipeline_s(1, {{4, 2, 1}, {4, 2, 1}}), 4 + 4 + 2 + 1);  // outputs wait for tokens
  EXPECT_EQ(pipeline_s(0, {{1, 1, 5}, {1, 1, 5}}),
            1 + 1 + 5 + 5);  // the link is what takes longest
  EXPECT_EQ(pipeline_s(0, {{1, 9, 1}, {1, 9, 1}}), 1 + 9 + 9 + 1);  // attention is
}

TEST(Pipeline, TakesAtLeastWhatEachResourceIsBusyAndAtMostAllOfIt) {
  for (uint64_t draw = 0; draw < 200; ++draw) {
    std::vector<StepTimes> steps(1 + draw % 7);
    double link = 0, attention = uniform(draw, 0);
    const double own = attention;
    uint64_t index = 1;
    for (StepTimes& step : steps) {
      step = {uniform(draw, index), uniform(draw, index + 1), uniform(draw, index + 2)};
      index += 3;
      link += step.tokens_s + step.outputs_s, attention += step.attention_s;
    }
    const double seconds = pipeline_s(own, steps);
    EXPECT_GE(seconds, std::max(link, attention + steps.back().outputs_s) - 1e-12);
    EXPECT_LE(seconds, link + attention + 1e-12);
  }
}

TEST(LevelLoads, OfTwoRanks) {
  const auto loads = level_loads(Levels(2, {{0, 0}}), Geometry::disjoint);
  ASSERT_EQ(loads.size(), 1U);
  EXPECT_DOUBLE_EQ(loads[0].new_pairs, 0.5);   // one square, for two ranks
  EXPECT_DOUBLE_EQ(loads[0].cached_pairs, 1);  // two
  EXPECT_DOUBLE_EQ(loads[0].sent_of_all, 0.5);
  ASSERT_EQ(loads[0].sent.size(), 2U);
  EXPECT_EQ(loads[0].sent[0], (LevelLoad::Sent{0, 0.5})) << "the first rank sends keys alone";
  EXPECT_EQ(loads[0].sent[1], (LevelLoad::Sent{0.5, 0}));
}

TEST(LevelLoads, OfServersBetween) {
  const auto loads = level_loads(Levels(4, {{0, 0, 1, 1}, {0, 0, 0, 0}}), Geometry::disjoint);
  ASSERT_EQ(loads.size(), 2U);
  EXPECT_DOUBLE_EQ(loads[1].new_pairs, 1);      // four squares, for four ranks
  EXPECT_DOUBLE_EQ(loads[1].sent_of_all, 0.5);  // the other rank of its server has its tokens
  EXPECT_DOUBLE_EQ(loads[1].sent_home, 0.75);
  EXPECT_TRUE(level_loads(Levels(2, {{0, 0}}), Geometry::nested)[0].repeats_own);
}

/// Pairs of a query and a key that the rank's tasks attend at each level, in rows of a part squared.
TEST(LevelLoads, HaveThePairsAndBytesOfThePlan) {
  constexpr int64_t rows = 960, heads = 12;
  for (const auto& levels :
       {Levels(2, {{0, 0}}), Levels(4, {{0, 0, 0, 0}}), Levels(4, {{0, 0, 1, 1}, {0, 0, 0, 0}}),
        Levels(6, {{0, 0, 0, 1, 1, 1}, {0, 0, 0, 0, 0, 0}})}) {
    const auto loads = level_loads(levels, Geometry::disjoint);
    const LevelSequence sequence(levels.ranks(), PartTokens{.rows = rows});
    std::vector<double> most_pairs(loads.size());
    std::vector<double> most_sent(loads.size());
    for (int rank = 0; rank < levels.ranks(); ++rank)
      for (const LevelStep& step : level_steps(
               levels, {}, {sequence}, heads, [](int) { return 1; }, rank)) {
        double pairs = 0, sent = 0;
        for (const LevelTask& task : step.tasks)
          for (int key = 0; key < levels.ranks(); ++key)
            pairs += static_cast<double>(
                task.rows.size() *
                keys_seen(levels, {}, step.level, sequence, task.part, key).size());
        for (const auto& pieces : step.leaving)
          for (const LevelPiece& piece : pieces) {
            sent += static_cast<double>(piece.rows.size());
            for (const RowRange& range : piece.queries) sent += static_cast<double>(range.size());
          }
        auto& of = most_pairs[step.level - 2];
        of = std::max(of, pairs / (heads * rows * rows));
        most_sent[step.level - 2] = std::max(most_sent[step.level - 2], sent / (heads * rows));
      }
    for (size_t i = 0; i < loads.size(); ++i) {
      EXPECT_NEAR(loads[i].new_pairs, most_pairs[i], 0.01) << levels.ranks() << " ranks";
      double sent = 0;
      for (const LevelLoad::Sent& of_rank : loads[i].sent)
        sent = std::max(sent, of_rank.queries + of_rank.new_keys);
      EXPECT_NEAR(most_sent[i], sent, 0.01) << levels.ranks() << " ranks, level " << i + 2;
    }
  }
}

TEST(LayerTime, FallsWithDropAndWithFasterLinks) {
  const auto loads = level_loads(Levels(4, {{0, 0, 1, 1}, {0, 0, 0, 0}}), Geometry::disjoint);
  const RingShape shape{.num_heads = 8, .num_kv_heads = 2};
  for (const int micro : {1, 2, 4, 8}) {
    double before = HUGE_VAL;
    for (double drop = 0; drop < 0.95; drop += 0.02) {
      const LevelRule rule{Geometry::disjoint, drop};
      const double slow = layer_s(loads, rule, {1024, 512}, shape, {1e-9, {1e-7, 1e-7}}, {micro});
      EXPECT_LE(slow, before);
      EXPECT_LE(layer_s(loads, rule, {1024, 512}, shape, {1e-9, {1e-8, 1e-7}}, {micro}), slow);
      before = slow;
    }
  }
}

TEST(LayerTime, OfOneLevelIsTheOwnPart) {
  const RingShape shape{.num_heads = 8, .num_kv_heads = 2};
  EXPECT_DOUBLE_EQ(layer_s({}, {}, {100, 50}, shape, {1e-9, {}}, {1}), 8e-9 * 100 * (50 + 50));
}

TEST(LayerTime, TakesTheMeanOfTheHeads) {
  const auto loads = level_loads(Levels(2, {{0, 0}}), Geometry::disjoint);
  const RingShape shape{.num_heads = 8, .num_kv_heads = 2};
  const LevelRates rates{1e-9, {1e-7}};
  const double alike = layer_s(loads, {Geometry::disjoint, 0.5}, {1024, 512}, shape, rates, {2});
  EXPECT_DOUBLE_EQ(
      layer_s(loads, {Geometry::disjoint, 0.5, {0.3, 0.7}}, {1024, 512}, shape, rates, {2}), alike);
  EXPECT_GT(layer_s(loads, {Geometry::disjoint, 0.5, {0.3, 0.5}}, {1024, 512}, shape, rates, {2}),
            alike);
}

/// The least time of all combinations, which best_micros is to find or come near to.
double least_of_all(std::span<const int> choices, int levels, Micros& micros,
                    const std::function<double(const Micros&)>& seconds) {
  if (std::ssize(micros) == levels) return seconds(micros);
  double least = HUGE_VAL;
  for (const int choice : choices) {
    micros.push_back(choice);
    least = std::min(least, least_of_all(choices, levels, micros, seconds));
    micros.pop_back();
  }
  return least;
}

TEST(BestMicros, ComeWithinAHundredthOfTheBestOfAllCombinations) {
  const std::vector<int> choices{1, 2, 4, 8};
  const Levels levels(
      8, {{0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0, 0, 0}});
  const auto loads = level_loads(levels, Geometry::disjoint);
  const RingShape shape{.num_heads = 8, .num_kv_heads = 2};
  double worst = 1;
  int differ = 0;
  for (uint64_t draw = 0; draw < 200; ++draw) {
    const auto power = [&](uint64_t index, double low, double high) {
      return std::pow(10, low + (high - low) * uniform(draw, index));
    };
    const LevelRates rates{1e-9, {power(0, -9, -6), power(1, -9, -6), power(2, -9, -6)}};
    const LevelRule rule{Geometry::disjoint, 0.9 * uniform(draw, 3)};
    const RankTokens tokens{power(4, 2, 4), draw % 2 == 0 ? 0 : power(5, 2, 4)};
    const double step_s = power(6, -6, -3);
    const auto seconds = [&](const Micros& micros) {
      double steps = 0;
      for (int level = 2; level <= levels.count(); ++level) steps += micro_at(micros, level);
      return layer_s(loads, rule, tokens, shape, rates, micros) + step_s * steps;
    };
    const Micros found = best_micros(choices, levels.count() - 1, seconds);
    Micros none;
    worst = std::max(worst, seconds(found) / least_of_all(choices, 3, none, seconds));
    differ += found.size() > 1;
  }
  EXPECT_LT(worst, 1.01);
  EXPECT_GT(differ, 20) << "levels are best cut into other numbers of parts";
}

TEST(BestMicros, AreOneNumberWhereAllAreTheSame) {
  const std::vector<int> choices{1, 2, 4};
  const auto distance = [](const Micros& micros) {
    double sum = 0;
    for (const int micro : micros) sum += std::abs(micro - 2);
    return sum;
  };
  EXPECT_EQ(best_micros(choices, 3, distance), Micros{2});
  EXPECT_EQ(best_micros(choices, 2, [](const Micros&) { return 1.0; }), Micros{1});
  EXPECT_EQ(best_micros(choices, 2, [](const Micros& m) { return std::abs(m[0] - 4) + m[1]; }),
            (Micros{4, 1}));
  EXPECT_THROW(best_micros({}, 1, distance), InvalidArgument);
}

TEST(LayerTime, NeedsARateForEachLevel) {
  const auto loads = level_loads(Levels(2, {{0, 0}}), Geometry::disjoint);
  EXPECT_THROW(layer_s(loads, {}, {1, 0}, {}, {1, {}}, {1}), InvalidArgument);
}

}  // namespace
}  // namespace pecia::parallel
