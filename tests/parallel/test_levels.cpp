// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/level_plan.hpp"
#include "lib/ranks/parallel/level_rule.hpp"

namespace pecia::parallel {
namespace {

using testing::ElementsAre;

std::vector<std::vector<int>> segments_of(const Levels& levels) {
  std::vector<std::vector<int>> found;
  for (int level = 2; level <= levels.count(); ++level) {
    auto& segments = found.emplace_back();
    for (int rank = 0; rank < levels.ranks(); ++rank)
      segments.push_back(levels.segment(level, rank));
  }
  return found;
}

TEST(LevelsOf, FollowFromPlaces) {
  const std::vector<int> servers{0, 0, 1, 1, 2, 2, 3, 3}, one_rack(8),
      racks{0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_THAT(segments_of(levels_of(servers, one_rack)), ElementsAre(servers, std::vector<int>(8)));
  EXPECT_THAT(segments_of(levels_of(servers, racks)),
              ElementsAre(servers, racks, std::vector<int>(8)));
  EXPECT_THAT(segments_of(levels_of(one_rack, one_rack)), ElementsAre(std::vector<int>(8)));
  EXPECT_EQ(levels_of({0}, {0}).count(), 1);
  EXPECT_EQ(levels_of({0}, {0}, 3).count(), 1) << "one rank joins nothing";
  EXPECT_THAT(segments_of(levels_of({0, 1, 2}, {0, 0, 0})), ElementsAre(std::vector<int>(3)))
      << "a rank on each server";
  EXPECT_THAT(segments_of(levels_of({0, 0, 0, 0}, {0, 0, 1, 1})),
              ElementsAre(std::vector<int>{0, 0, 1, 1}, std::vector<int>(4)))
      << "a server's name in two racks is two servers";
}

TEST(LevelsOf, AreAsManyAsWantedWhereRanksCanBeJoined) {
  const std::vector<int> servers{0, 0, 1, 1, 2, 2, 3, 3}, one_rack(8),
      racks{0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_THAT(segments_of(levels_of(servers, one_rack, 4)), ElementsAre(servers, racks, one_rack));
  EXPECT_THAT(segments_of(levels_of(servers, racks, 3)), ElementsAre(servers, one_rack));
  EXPECT_THAT(segments_of(levels_of(servers, racks, 2)), ElementsAre(one_rack));
  EXPECT_THAT(segments_of(levels_of(servers, racks, 1)), ElementsAre());
  EXPECT_THAT(segments_of(levels_of(one_rack, one_rack, 3)),
              ElementsAre(std::vector<int>{0, 0, 0, 1, 1, 1, 2, 2}, one_rack));
  EXPECT_THAT(segments_of(levels_of({0, 0, 0}, {0, 0, 0}, 4)),
              ElementsAre(std::vector<int>{0, 0, 1}, std::vector<int>(3)))
      << "three ranks form no more";
  EXPECT_EQ(levels_of({0, 0}, {0, 0}, 4).count(), 2);
  EXPECT_THROW(levels_of({0, 0}, {0, 0}, 0), InvalidArgument);
}

TEST(Levels, RefuseSegmentsThatDoNotJoin) {
  EXPECT_THROW(Levels(2, {{0, 2}}), InvalidArgument);
  EXPECT_THROW(Levels(3, {{0, 0, 1}, {0, 1, 1}}), InvalidArgument) << "a segment is torn";
  EXPECT_THROW(Levels(3, {{0, 0}}), InvalidArgument);
  const Levels two_servers(4, {{0, 0, 1, 1}, {0, 0, 0, 0}});
  EXPECT_THAT(two_servers.deal_order(3, 0, Geometry::disjoint), ElementsAre(0, 2, 3, 1));
  EXPECT_THAT(two_servers.deal_order(3, 0, Geometry::nested), ElementsAre(0, 2, 1, 3));
}

TEST(LevelRule, HalvesWhatItKeepsAtEachFurtherLevel) {
  const LevelRule rule{Geometry::disjoint, 0.4};
  EXPECT_DOUBLE_EQ(rule.kept(1), 1);
  EXPECT_DOUBLE_EQ(rule.kept(2), 0.6);
  EXPECT_DOUBLE_EQ(rule.kept(4), 0.15);
  for (int level = 1; level < 5; ++level) EXPECT_EQ(LevelRule{}.kept(level), 1);
  const PartTokens part{10, 7, 3};
  EXPECT_EQ(kept_cached(rule, 2, part), 6);
  EXPECT_EQ(kept_rows(rule, 2, part), 5);
  EXPECT_EQ(kept_rows(rule, 4, part), 3) << "the question's rows are never dropped";
  EXPECT_EQ(kept_rows(rule, 4, {.cached = 10, .rows = 7, .last = 3, .first = 2}), 5);
  EXPECT_EQ(kept_rows(rule, 4, {.cached = 10, .rows = 7, .last = 5, .first = 5}), 7);
  EXPECT_EQ(kept_cached(rule, 4, {.cached = 10, .first_cached = 4}), 4);
}

TEST(LevelRule, DropsOtherSharesOfTheKeysOfEachHead) {
  const LevelRule rule{Geometry::disjoint, 0.5, {0.2, 0, 0.8}};
  const PartTokens part{.cached = 100, .rows = 10, .last = 3};
  EXPECT_EQ(kept_cached(rule, 2, part, 0), 80);
  EXPECT_EQ(kept_cached(rule, 3, part, 0), 40);
  EXPECT_EQ(kept_cached(rule, 3, part, 1), 100) << "a head that drops nothing keeps all";
  EXPECT_EQ(kept_row_keys(rule, 2, part, 2), 3) << "the question's rows are never dropped";
  EXPECT_EQ(kept_rows(rule, 2, part), 5) << "all heads have the same queries";
  EXPECT_THROW(rule.kept_keys(2, 3), std::out_of_range);
}

TEST(SparseSetting, GivesEachLayerItsRule) {
  SparseSetting setting{{Geometry::disjoint, 0.3}};
  EXPECT_EQ(setting.rule_of(1, 4, 0, 2), setting.rule);
  for (const int64_t outer : {0, 3}) EXPECT_EQ(setting.rule_of(outer, 4, 0, 2).drop, 0);
  setting.layer_drops = {{0}, {0.2}, {0.1, 0.5, 0.3}, {0}};
  EXPECT_NEAR(mean_drop(setting.layer_drops), 0.25, 1e-12);
  EXPECT_EQ(setting.rule_of(1, 4, 1, 2), (LevelRule{Geometry::disjoint, 0.2}));
  const LevelRule by_head = setting.rule_of(2, 4, 1, 2);
  EXPECT_NEAR(by_head.drop, 0.3, 1e-12) << "the mean over the model's heads, not the rank's";
  EXPECT_EQ(by_head.key_drops, (std::vector<double>{0.5, 0.3}));
  EXPECT_THROW(setting.rule_of(1, 5, 0, 2), InvalidArgument);
  EXPECT_THROW(setting.rule_of(2, 4, 2, 2), InvalidArgument);
}

TEST(Micros, CountForFurtherLevelsAsTheLast) {
  EXPECT_EQ(micro_at({4}, 4), 4);
  EXPECT_EQ(micro_at({8, 2}, 2), 8);
  EXPECT_EQ(micro_at({8, 2}, 3), 2);
  EXPECT_EQ(micro_at({8, 2}, 4), 2);
  EXPECT_EQ(to_string(Micros{8, 2}), "8, 2");
}

TEST(BestMicro, IsOneWhereLinksAreFastAndMoreWhereTheyAreSlow) {
  RingInputs in;
  in.ranks = 4;
  in.shape = {.num_heads = 9, .num_kv_heads = 3};
  in.load.add(8192, 0);
  const auto at = [&](double bandwidth, LevelRule rule = {}) {
    in.rates = {.flops = 1e11, .bandwidth = bandwidth, .all_to_all_bandwidth = bandwidth};
    return micros_by_rule(in, Levels(4, {{0, 0, 0, 0}}), rule);
  };
  EXPECT_EQ(at(2e10), Micros{1});
  EXPECT_EQ(at(2.5e8), Micros{8});
  EXPECT_EQ(at(2.5e7, {Geometry::disjoint, 0.9}), Micros{2}) << "parts of few rows";
  in.load = {};
  in.load.add(100, 0);
  EXPECT_EQ(at(2.5e7), Micros{1});
  EXPECT_THROW(at(0), InvalidArgument);
}

struct Case {
  Levels levels;
  LevelRule rule;
  std::vector<LevelSequence> sequences;
  int64_t kv_heads;
  int micro;

  std::vector<std::vector<LevelStep>> steps() const {
    std::vector<std::vector<LevelStep>> all;
    for (int rank = 0; rank < levels.ranks(); ++rank)
      all.push_back(level_steps(
          levels, rule, sequences, kv_heads, [&](int level) { return level == 2 ? micro : 1; },
          rank));
    return all;
  }
};

class Cases {
 public:
  Case draw() {
    const auto ranks = static_cast<int>(number(1, 8));
    std::vector<int> servers(ranks), racks(ranks);
    for (int rank = 1; rank < ranks; ++rank) {
      racks[rank] = racks[rank - 1] + (number(0, 3) == 0);
      servers[rank] = servers[rank - 1] + (number(0, 1) == 0);
    }
    std::optional<int> wanted;
    if (number(0, 1) == 0) wanted = static_cast<int>(number(1, 4));
    Case drawn{levels_of(servers, racks, wanted),
               {number(0, 2) == 0 ? Geometry::nested : Geometry::disjoint,
                number(0, 2) == 0 ? 0 : 0.01 * static_cast<double>(number(1, 95))},
               {},
               number(1, 4),
               static_cast<int>(number(1, 5))};
    for (int64_t i = number(1, 2); i > 0; --i) {
      LevelSequence& sequence = drawn.sequences.emplace_back();
      for (int rank = 0; rank < ranks; ++rank) {
        PartTokens& part = sequence.emplace_back();
        part.cached = number(0, 2) == 0 ? 0 : number(0, 9);
        part.rows = number(0, 4) == 0 ? 0 : number(0, 9);
        part.last = rank + 1 == ranks ? number(0, part.rows) : 0;
        part.first = number(0, std::min<int64_t>(2, part.rows));
        part.first_cached = rank == 0 ? std::min<int64_t>(2, part.cached) : 0;
      }
    }
    if (drawn.rule.geometry == Geometry::disjoint && drawn.rule.drop > 0 && number(0, 1) == 0)
      for (int64_t head = 0; head < drawn.kv_heads; ++head)
        drawn.rule.key_drops.push_back(0.05 * static_cast<double>(number(0, 19)));
    return drawn;
  }

 private:
  int64_t number(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  std::mt19937_64 random_{20261124};
};

/// Sequence, head, part and row of a query.
using Query = std::tuple<int, int64_t, int, int64_t>;

TEST(LevelSteps, AttendEachKeptQueryOnceAtEachLevelThatShowsItKeys) {
  Cases cases;
  int tried = 0;
  for (; tried < 300; ++tried) {
    const Case one = cases.draw();
    const auto steps = one.steps();
    std::map<std::pair<int, Query>, int> times;  // by level
    for (const auto& of_rank : steps)
      for (const LevelStep& step : of_rank)
        for (const LevelTask& task : step.tasks)
          for (int64_t row = task.rows.begin; row < task.rows.end; ++row)
            ++times[{step.level, {task.sequence, task.head, task.part, row}}];
    size_t wanted = 0;
    for (int level = 2; level <= one.levels.count(); ++level)
      for (size_t sequence = 0; sequence < one.sequences.size(); ++sequence)
        for (int part = 0; part < one.levels.ranks(); ++part) {
          int64_t keys = 0;
          for (int key_part = 0; key_part < one.levels.ranks(); ++key_part)
            keys += keys_seen(one.levels, one.rule, level, one.sequences[sequence], part, key_part)
                        .size();
          if (keys > 0)
            wanted += one.kv_heads * kept_rows(one.rule, level, one.sequences[sequence][part]);
        }
    EXPECT_EQ(times.size(), wanted);
    for (const auto& [query, count] : times) ASSERT_EQ(count, 1);
  }
}

TEST(LevelSteps, CoverEachCausalPairByOneLevelOrDropIt) {
  Cases cases;
  int exact = 0;
  for (int attempt = 0; attempt < 200; ++attempt) {
    const Case one = cases.draw();
    if (one.rule.geometry == Geometry::nested) continue;
    const int ranks = one.levels.ranks();
    for (const LevelSequence& sequence : one.sequences)
      for (int query = 0; query < ranks; ++query)
        for (int key = 0; key < ranks; ++key) {
          if (query == key) continue;
          int levels = 0, lowest = 0;
          Seen seen;
          for (int level = one.levels.count(); level >= 2; --level) {
            const Seen here = seen_at(one.levels, one.rule, level, query, key);
            if (here.cached) ++levels, seen = here;
            if (one.levels.together(level, query, key)) lowest = level;
          }
          EXPECT_EQ(levels, lowest > 0 ? 1 : 0);
          EXPECT_EQ(seen.rows, lowest > 0 && key < query);
          if (lowest == 0 || one.rule.drop > 0) continue;
          ++exact;
          const SeenKeys keys = keys_seen(one.levels, one.rule, lowest, sequence, query, key);
          EXPECT_EQ(keys.cached, sequence[key].cached) << "with drop 0 all are kept";
          EXPECT_EQ(keys.rows, key < query ? sequence[key].rows : 0);
        }
  }
  EXPECT_GT(exact, 500);
}

TEST(LevelSteps, BringWhatEachTaskNeedsOnce) {
  Cases cases;
  for (int attempt = 0; attempt < 300; ++attempt) {
    const Case one = cases.draw();
    const auto steps = one.steps();
    const int ranks = one.levels.ranks();
    for (int rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(steps[rank].size(), steps[0].size());
      std::map<std::tuple<int, int, int64_t>, LevelPiece> here;  // by source, sequence, head
      std::map<int, std::set<Query>> queries;
      for (size_t i = 0; i < steps[rank].size(); ++i) {
        const LevelStep& step = steps[rank][i];
        for (int from = 0; from < ranks; ++from) {
          if (from != rank) {
            ASSERT_EQ(step.arriving[from].size(), steps[from][i].leaving[rank].size());
          }
          for (size_t p = 0; p < step.arriving[from].size(); ++p) {
            const LevelPiece& piece = step.arriving[from][p];
            LevelPiece& had = here[{from, piece.sequence, piece.head}];
            ASSERT_EQ(piece.cached.begin, had.cached.end) << "sent once, without gaps";
            ASSERT_EQ(piece.rows.begin, had.rows.end);
            had.cached.end = piece.cached.end, had.rows.end = piece.rows.end;
            for (const RowRange& range : piece.queries)
              for (int64_t row = range.begin; row < range.end; ++row)
                ASSERT_TRUE(queries[from].insert({piece.sequence, piece.head, from, row}).second);
            if (from == rank) continue;
            const LevelPiece& left = steps[from][i].leaving[rank][p];
            EXPECT_EQ(
                std::tie(left.sequence, left.head, left.cached, left.rows, left.queries),
                std::tie(piece.sequence, piece.head, piece.cached, piece.rows, piece.queries));
          }
        }
        EXPECT_TRUE(step.leaving[rank].empty());
        for (const LevelTask& task : step.tasks) {
          for (int64_t row = task.rows.begin; row < task.rows.end; ++row)
            ASSERT_TRUE(queries[task.part].contains({task.sequence, task.head, task.part, row}));
          for (int from = 0; from < ranks; ++from) {
            const SeenKeys keys =
                keys_seen(one.levels, one.rule, step.level, one.sequences[task.sequence], task.part,
                          from, task.head);
            const LevelPiece& had = here[{from, task.sequence, task.head}];
            ASSERT_LE(keys.cached, had.cached.end);
            ASSERT_LE(keys.rows, had.rows.end);
          }
          if (task.part == rank) continue;
          const auto& elsewhere = steps[task.part][i].elsewhere[rank];
          EXPECT_EQ(std::ranges::count(elsewhere, task), 1) << "the outputs come home";
        }
      }
    }
  }
}

/// Two servers: each part of the second one has its queries attended on the first for half of the heads.
TEST(LevelSteps, SendEachPartsQueriesFarForAsManyHeads) {
  const std::vector<int> servers{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  const Levels levels = levels_of(servers, std::vector<int>(16));
  EXPECT_THAT(levels.deal_order(3, 0, Geometry::disjoint),
              ElementsAre(0, 8, 9, 1, 10, 2, 3, 11, 12, 4, 5, 13, 6, 14, 15, 7));
  LevelSequence sequence;
  for (int rank = 0; rank < 16; ++rank) sequence.push_back({0, 1000, 0});
  std::vector<double> far(16);
  for (int rank = 0; rank < 16; ++rank)
    for (const LevelStep& step : level_steps(
             levels, {Geometry::disjoint, 0.2}, {sequence}, 4, [](int) { return 1; }, rank))
      for (int to = 0; to < 8; ++to)
        for (const LevelPiece& piece : step.leaving[to])
          for (const RowRange& rows : piece.queries)
            if (rank >= 8) far[rank] += static_cast<double>(rows.size());
  for (int rank = 8; rank < 16; ++rank) EXPECT_NEAR(far[rank] / (4 * 400.0), 0.5, 0.05) << rank;
}

TEST(LevelSteps, DealPairsEvenly) {
  const Levels levels = levels_of({0, 0, 0, 1, 1, 1, 2}, std::vector<int>(7));
  const LevelRule rule{Geometry::disjoint, 0.3};
  LevelSequence sequence;
  for (int rank = 0; rank < 7; ++rank) sequence.push_back({50, 300, 0});
  std::map<int, std::vector<double>> pairs;  // by level: of each rank
  for (int rank = 0; rank < 7; ++rank) {
    std::map<int, double> own;
    for (const LevelStep& step : level_steps(
             levels, rule, {sequence}, 3, [](int) { return 2; }, rank))
      for (const LevelTask& task : step.tasks)
        for (int key = 0; key < 7; ++key)
          own[step.level] +=
              static_cast<double>(task.rows.size()) *
              static_cast<double>(
                  keys_seen(levels, rule, step.level, sequence, task.part, key).size());
    for (const auto& [level, count] : own) pairs[level].push_back(count);
  }
  ASSERT_EQ(pairs[3].size(), 7) << "three heads on seven ranks";
  for (const auto& [level, of_ranks] : pairs) {
    if (level == 2) continue;  // servers have different numbers of ranks
    const double mean = std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0) /
                        static_cast<double>(of_ranks.size());
    for (const double each : of_ranks) EXPECT_NEAR(each / mean, 1, 0.02);
  }
}

TEST(LevelSteps, OfWholeHeadsSendWhatUlyssesSends) {
  // Four ranks, four heads, nothing dropped, one level of all: every head's tokens go to one rank.
  const Levels levels = levels_of({0, 0, 0, 0}, {0, 0, 0, 0});
  const LevelSequence sequence(4, {0, 100, 0});
  int64_t queries = 0, keys = 0;
  for (int rank = 0; rank < 4; ++rank)
    for (const LevelStep& step : level_steps(
             levels, {}, {sequence}, 4, [](int) { return 1; }, rank))
      for (const auto& pieces : step.leaving)
        for (const LevelPiece& piece : pieces) {
          keys += piece.rows.size();
          for (const RowRange& rows : piece.queries) queries += rows.size();
        }
  // Rank 0's rows see no other part, and rank 3's keys are seen by none.
  EXPECT_EQ(queries, 3 * 3 * 100);
  EXPECT_EQ(keys, 3 * 3 * 100);
}

/// All tasks of a level, as queries.
std::map<int, std::set<Query>> queries_of(const std::vector<LevelStep>& steps) {
  std::map<int, std::set<Query>> queries;
  for (const LevelStep& step : steps)
    for (const LevelTask& task : step.tasks)
      for (int64_t row = task.rows.begin; row < task.rows.end; ++row)
        EXPECT_TRUE(queries[step.level].insert({task.sequence, task.head, task.part, row}).second);
  return queries;
}

TEST(HomeSteps, AttendWhatAllRanksOfARingDo) {
  Cases cases;
  for (int attempt = 0; attempt < 300; ++attempt) {
    const Case one = cases.draw();
    std::map<int, std::set<Query>> wanted;
    for (const auto& of_rank : one.steps())
      for (auto& [level, queries] : queries_of(of_rank)) wanted[level].merge(queries);
    const auto steps = head_parallel_steps(one.levels, one.rule, one.sequences, one.kv_heads);
    ASSERT_EQ(std::ssize(steps), one.levels.count() - 1);
    EXPECT_EQ(queries_of(steps), wanted);
  }
}

TEST(HomeSteps, TakeEachTokenOnceAndSendNone) {
  Cases cases;
  for (int attempt = 0; attempt < 300; ++attempt) {
    const Case one = cases.draw();
    const int parts = one.levels.ranks();
    std::map<std::tuple<int, int, int64_t>, LevelPiece> here;  // by part, sequence, head
    std::set<Query> queries;
    for (const LevelStep& step :
         head_parallel_steps(one.levels, one.rule, one.sequences, one.kv_heads)) {
      for (int part = 0; part < parts; ++part) {
        EXPECT_TRUE(step.leaving[part].empty() && step.elsewhere[part].empty());
        for (const LevelPiece& piece : step.arriving[part]) {
          LevelPiece& had = here[{part, piece.sequence, piece.head}];
          ASSERT_EQ(piece.cached.begin, had.cached.end) << "taken once, without gaps";
          ASSERT_EQ(piece.rows.begin, had.rows.end);
          had.cached.end = piece.cached.end, had.rows.end = piece.rows.end;
          for (const RowRange& range : piece.queries)
            for (int64_t row = range.begin; row < range.end; ++row)
              ASSERT_TRUE(queries.insert({piece.sequence, piece.head, part, row}).second);
        }
      }
      for (const LevelTask& task : step.tasks)
        for (int part = 0; part < parts; ++part) {
          const SeenKeys keys = keys_seen(one.levels, one.rule, step.level,
                                          one.sequences[task.sequence], task.part, part, task.head);
          const LevelPiece& had = here[{part, task.sequence, task.head}];
          ASSERT_LE(keys.cached, had.cached.end);
          ASSERT_LE(keys.rows, had.rows.end);
        }
      for (const auto& [level, asking] : queries_of({step}))
        EXPECT_TRUE(std::ranges::includes(queries, asking));
    }
  }
}

}  // namespace
}  // namespace pecia::parallel
