// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>

#include "lib/model/attention/sparse_totals.hpp"

namespace pecia::attention {
namespace {

using comm::LinkLevel;
using parallel::Geometry;
using parallel::LevelRule;
using parallel::Levels;
using parallel::LevelSequence;

constexpr int64_t head_dim = 16, query_bytes = head_dim * 4, key_bytes = 2 * head_dim * 4;

CountedShape shape_of(int64_t num_heads, int64_t kv_heads, std::vector<LinkLevel> links) {
  return {num_heads, {3, kv_heads, head_dim, DType::fp32}, std::move(links)};
}

LevelSequence even(int ranks, int64_t rows, int64_t cached = 0) {
  return LevelSequence(ranks, {cached, rows, 0});
}

/// What all ranks count for a layer, and their sum.
struct Counted {
  std::vector<LayerCount> ranks;
  SparseTotals sum;
};

/// `per_server` ranks share a server.
Counted counted(const Levels& levels, const LevelRule& rule,
                const std::vector<LevelSequence>& sequences, int64_t num_heads, int64_t kv_heads,
                int per_server) {
  Counted all;
  for (int rank = 0; rank < levels.ranks(); ++rank) {
    std::vector<LinkLevel> links;
    for (int other = 0; other < levels.ranks(); ++other)
      links.push_back(rank / per_server == other / per_server ? LinkLevel::server
                                                              : LinkLevel::rack);
    const auto steps = level_steps(
        levels, rule, sequences, kv_heads, [](int) { return 2; }, rank);
    const LevelLayout layout = lay_out(levels, rule, sequences, steps, {rank, 1}, head_dim);
    all.ranks.push_back(count_layer(levels, rule, sequences, layout, {rank, 1},
                                    shape_of(num_heads, kv_heads, std::move(links))));
    SparseTotals of_rank = SparseTotals::of(levels, 3);
    of_rank.add(1, all.ranks.back());
    all.sum += of_rank;
  }
  return all;
}

/// The same where the ranks share the heads, and each has all parts.
Counted counted_head_parallel(const Levels& levels, const LevelRule& rule,
                              const std::vector<LevelSequence>& sequences, int64_t num_heads,
                              int64_t kv_heads) {
  Counted all;
  const int ranks = levels.ranks();
  const parallel::PartsHere here{0, ranks};
  const auto steps = head_parallel_steps(levels, rule, sequences, kv_heads / ranks);
  const LevelLayout layout = lay_out(levels, rule, sequences, steps, here, head_dim);
  for (const LevelLayout::Step& step : layout.steps)
    EXPECT_TRUE(step.tokens_out.empty() && step.tokens_in.empty() && step.results_out.empty() &&
                step.results_in.empty());
  for (int rank = 0; rank < ranks; ++rank) {
    all.ranks.push_back(count_layer(levels, rule, sequences, layout, here,
                                    shape_of(num_heads / ranks, kv_heads / ranks,
                                             std::vector<LinkLevel>(ranks, LinkLevel::server))));
    SparseTotals of_rank = SparseTotals::of(levels, 3);
    of_rank.add(1, all.ranks.back());
    all.sum += of_rank;
  }
  return all;
}

Levels one_server() {
  return {4, {{0, 0, 0, 0}}};
}
Levels two_servers() {
  return {4, {{0, 0, 1, 1}, {0, 0, 0, 0}}};
}

TEST(SparseTotals, OfSharedHeadsAreThePairsOfSharedTokensAndNoBytes) {
  const std::vector<LevelSequence> sequences{even(4, 128), even(4, 70)};
  for (const double drop : {0.0, 0.5}) {
    const LevelRule rule{Geometry::disjoint, drop};
    const Counted tokens = counted(two_servers(), rule, sequences, 8, 4, /*per_server=*/2);
    const Counted heads = counted_head_parallel(two_servers(), rule, sequences, 8, 4);
    EXPECT_EQ(heads.sum.dense_pairs, tokens.sum.dense_pairs);
    ASSERT_EQ(heads.sum.levels.size(), tokens.sum.levels.size());
    for (size_t level = 0; level < heads.sum.levels.size(); ++level) {
      EXPECT_EQ(heads.sum.levels[level].pairs, tokens.sum.levels[level].pairs);
      EXPECT_EQ(heads.sum.levels[level].kept, 4 * tokens.sum.levels[level].kept)
          << "each rank has all tokens";
    }
    EXPECT_EQ(heads.sum.sent_bytes(), 0);
    EXPECT_EQ(heads.sum.dense_bytes(), 0);
  }
}

TEST(SparseTotals, OfWholeHeadsAndNothingDroppedAreLessThanUlyssesSends) {
  const Counted all =
      counted(one_server(), {Geometry::disjoint, 0}, {even(4, 128)}, 8, 4, /*per_server=*/4);
  EXPECT_EQ(all.sum.dense_pairs, 8 * 512 * 513 / 2);
  EXPECT_EQ(all.sum.pairs(), all.sum.dense_pairs);
  EXPECT_EQ(all.sum.levels[0].pairs, 4 * 8 * 128 * 129 / 2);
  // Each rank attends one KV head. Keys of the last part and queries of the first go nowhere.
  EXPECT_EQ(all.sum.levels[1].token_bytes, 3 * 3 * 128 * (key_bytes + 2 * query_bytes));
  EXPECT_EQ(all.sum.levels[1].output_bytes, 3 * 3 * 128 * 2 * (query_bytes + 4));
  for (const LayerCount& rank : all.ranks) {
    EXPECT_EQ(rank.dense_pairs, 8 * 512 * 513 / 2 / 4);
    EXPECT_EQ(rank.dense_by_link[0], 3 * 128 * (key_bytes + 4 * query_bytes));
  }
  EXPECT_LT(all.sum.sent_bytes(), all.sum.dense_bytes());
}

TEST(SparseTotals, OfOneRankSendNothing) {
  const Counted all = counted({1, {}}, {Geometry::disjoint, 0}, {even(1, 10, 5)}, 4, 2, 1);
  EXPECT_EQ(all.sum.pairs(), 4 * (10 * 5 + 55));
  EXPECT_EQ(all.sum.dense_pairs, all.sum.pairs());
  EXPECT_EQ(all.sum.sent_bytes(), 0);
  EXPECT_EQ(all.sum.dense_bytes(), 0);
}

TEST(SparseTotals, CountCachedTokensAsKeysAlone) {
  const Levels levels{2, {{0, 0}}};
  const Counted all = counted(levels, {Geometry::disjoint, 0}, {even(2, 2, 3)}, 4, 2, 2);
  EXPECT_EQ(all.sum.levels[0].pairs, 4 * 2 * (2 * 3 + 3));
  EXPECT_EQ(all.sum.levels[1].pairs, 4 * (2 * 3 + 2 * 5));
  EXPECT_EQ(all.sum.pairs(), all.sum.dense_pairs);
  EXPECT_EQ(all.sum.dense_bytes(), 2 * 2 * (key_bytes + 4 * query_bytes));  // of rows alone
}

TEST(SparseTotals, OfServersSayWhatLeavesThem) {
  const std::vector<LevelSequence> sequences{even(4, 131), even(4, 64, 7)};
  const Counted all = counted(two_servers(), {Geometry::disjoint, 0}, sequences, 8, 4, 2);
  EXPECT_EQ(all.sum.pairs(), all.sum.dense_pairs);
  EXPECT_EQ(all.sum.segment_ranks, (std::vector<int32_t>{1, 2, 4}));
  int64_t sent = 0;
  for (const LevelCount& level : all.sum.levels) sent += level.token_bytes + level.output_bytes;
  EXPECT_EQ(all.sum.sent_bytes(), sent);
  EXPECT_GT(all.sum.by_link[0], 0);
  EXPECT_GT(all.sum.by_link[1], 0);
  EXPECT_LT(all.sum.by_link[1], all.sum.dense_by_link[1]);
  EXPECT_EQ(all.sum.dense_by_link[1], 2 * all.sum.dense_by_link[0]);
}

TEST(SparseTotals, CountWhatLevelsKeep) {
  LevelSequence sequence = even(4, 128, 100);
  sequence[3].last = 64;
  const Counted dense = counted(two_servers(), {Geometry::disjoint, 0}, {sequence}, 8, 4, 2);
  const Counted sparse = counted(two_servers(), {Geometry::disjoint, 0.6}, {sequence}, 8, 4, 2);
  EXPECT_EQ(sparse.ranks[0].tokens, 228);
  EXPECT_EQ(sparse.ranks[0].levels[0].kept, 228);
  EXPECT_EQ(sparse.ranks[0].levels[1].kept, 40 + 52);
  EXPECT_EQ(sparse.ranks[0].levels[2].kept, 20 + 26);
  EXPECT_EQ(sparse.ranks[3].levels[2].kept, 20 + 64);
  EXPECT_EQ(sparse.sum.layers[1].tokens, 4 * 228);
  EXPECT_EQ(sparse.sum.layers[1].kept[2], 3 * 46 + 84);
  EXPECT_EQ(sparse.sum.layers[0].tokens, 0);
  EXPECT_EQ(sparse.sum.dense_pairs, dense.sum.dense_pairs);
  EXPECT_EQ(sparse.sum.dense_bytes(), dense.sum.dense_bytes());
  EXPECT_EQ(sparse.sum.levels[0].pairs, dense.sum.levels[0].pairs);
  for (const int level : {1, 2}) {
    EXPECT_LT(sparse.sum.levels[level].pairs, 0.3 * dense.sum.levels[level].pairs);
    EXPECT_LT(sparse.sum.levels[level].token_bytes, dense.sum.levels[level].token_bytes);
  }
}

TEST(SparseTotals, UlyssesSendsKvHeadsToSeveralRanksWhereTheyAreFew) {
  const Counted all = counted(one_server(), {Geometry::disjoint, 0}, {even(4, 10)}, 4, 1, 4);
  // To each of three ranks: a KV head, one query head, and one head's outputs.
  EXPECT_EQ(all.ranks[2].dense_by_link[0], 3 * 10 * (key_bytes + 2 * query_bytes));
  EXPECT_EQ(all.sum.pairs(), all.sum.dense_pairs);
}

TEST(SparseTotals, AddLayersPassesAndRanks) {
  const Counted all = counted(two_servers(), {Geometry::disjoint, 0}, {even(4, 8)}, 4, 2, 2);
  const std::vector<LinkLevel> links{LinkLevel::server, LinkLevel::server, LinkLevel::rack,
                                     LinkLevel::rack};
  SparseTotals totals = SparseTotals::of(two_servers(), 3);
  totals.add_pass({even(4, 8), even(4, 2, 9)});
  totals.add(0, all.ranks[1]);
  totals.add(2, all.ranks[1]);
  const double before = totals.sent_bytes();
  totals.add({300, 50}, 1, links);
  EXPECT_EQ(totals.passes, 1);
  EXPECT_EQ(totals.rows, 40);
  EXPECT_EQ(totals.layers[2].kept, (std::vector<int64_t>{8, 8, 8}));
  EXPECT_EQ(totals.sent_bytes(), before + 300);
  EXPECT_EQ(totals.by_link[1], 2 * all.ranks[1].by_link[1] + 200);

  SparseTotals twice = from_bytes<SparseTotals>(to_bytes(totals));
  EXPECT_EQ(to_bytes(twice), to_bytes(totals));
  twice += totals;
  EXPECT_EQ(twice.pairs(), 2 * totals.pairs());
  EXPECT_EQ(twice.importance_bytes, 600);
  EXPECT_EQ(twice.importance_pairs, 100);
  EXPECT_EQ(twice.layers[0].tokens, 16);
  EXPECT_EQ(twice.segment_ranks, totals.segment_ranks);
  SparseTotals none;
  none += totals;
  EXPECT_EQ(to_bytes(none), to_bytes(totals));
}

}  // namespace
}  // namespace pecia::attention
