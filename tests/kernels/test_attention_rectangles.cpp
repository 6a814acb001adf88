// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "kernels/cuda/attention/attention_rectangles.hpp"
#include "tests/kernels/key_runs.hpp"

namespace pecia::test {
namespace {

using namespace kernels;
using namespace kernels::cuda;

constexpr RectangleLimits take_all = {1, 0, int64_t{1} << 30};

/// Rows and keys of one item. Keys lie next to each other in memory, from one run to the next too,
/// unless `gaps` puts every run somewhere else.
struct MaskedItem {
  std::vector<int64_t> query_positions, key_positions;
  std::vector<int64_t> ends;  ///< of the runs
  Window window = {};
  bool gaps = false;
  std::vector<KeyRun> runs = {};

  void lay_out() {
    int64_t begin = 0, pieces = 0;
    if (runs.empty())
      for (const int64_t end : ends) {
        add_runs(runs, std::span(key_positions).subspan(begin, end - begin),
                 begin + (gaps ? 1000 * pieces++ : 0), 1, 1 << 16);
        begin = end;
      }
  }
  AttentionArgs args() {
    static float nothing = 0;
    lay_out();
    return {.q = TensorView(&nothing, DType::fp32, {num_rows(), 1, 1}),
            .query_positions = query_positions,
            .items = {},
            .runs = runs,
            .keys = {},
            .kv_dtype = DType::bf16,
            .num_kv_heads = 1,
            .scale = 1,
            .window = window,
            .out = {},
            .lse = {}};
  }
  int64_t num_rows() const { return static_cast<int64_t>(query_positions.size()); }
  AttentionItem item() {
    lay_out();
    return {0, num_rows(), 0, static_cast<int64_t>(runs.size())};
  }

  bool sees_anything() const {
    for (const int64_t query : query_positions)
      for (const int64_t key : key_positions)
        if (window.sees(query, key)) return true;
    return false;
  }

  std::vector<RectangleRows> cut(const RectangleLimits& limits = take_all) {
    return cut_rectangles(args(), item(), limits).value();
  }
};

std::vector<int64_t> positions(const std::vector<std::pair<int64_t, int64_t>>& ranges) {
  std::vector<int64_t> all;
  for (const auto& [begin, end] : ranges)
    for (int64_t p = begin; p < end; ++p) all.push_back(p);
  return all;
}

bool sees_in_mask(const Rectangle& r, int64_t i, int64_t j, Window window) {
  const int64_t diagonal = i + r.num_keys - r.num_rows;
  switch (r.mask) {
    case Mask::full:
      return true;
    case Mask::causal:
      return j <= diagonal;
    case Mask::band:
      return j <= diagonal && j > diagonal - window.tokens && !window.chunked();
    case Mask::mirror:
      return j >= i;
  }
  return false;
}

/// Every seen pair is in one rectangle, every rectangle's row sees a key, and folding writes each
/// row once before it merges into it. Keys are found as a library does, by their place in memory.
void expect_every_seen_pair_once(MaskedItem p, const RectangleLimits& limits = take_all) {
  if (!p.sees_anything()) {
    EXPECT_FALSE(cut_rectangles(p.args(), p.item(), limits).has_value());
    return;
  }
  const std::vector<RectangleRows> all = p.cut(limits);
  std::map<int64_t, int64_t> key_at;  // element: index among all keys
  int64_t begin = 0;
  for (const KeyRun& run : p.runs) {
    for (int64_t key = 0; key < run.num_keys; ++key) key_at[run.offset + key] = begin + key;
    begin += run.num_keys;
  }
  std::map<std::pair<int64_t, int64_t>, int> times;
  std::vector<int> folded(p.num_rows());
  for (const RectangleRows& rows : all) {
    ASSERT_LE(rows.num_rows, limits.max_rows);
    for (const Rectangle& r : rows.rectangles) {
      ASSERT_TRUE(r.mask == Mask::full || r.num_rows <= r.num_keys);
      ASSERT_LE(r.num_keys, limits.max_keys);
      int64_t next_row = r.first_row;
      for (const FoldRows& fold : r.folds) {
        ASSERT_EQ(fold.first_row, next_row);
        next_row += fold.num_rows;
        for (int64_t row = fold.first_row; row < next_row; ++row)
          EXPECT_EQ(folded[row]++ == 0, fold.how == Fold::write) << "row " << row;
      }
      ASSERT_EQ(next_row, r.first_row + r.num_rows);
      for (int64_t i = 0; i < r.num_rows; ++i) {
        int seen = 0;
        for (int64_t j = 0; j < r.num_keys; ++j)
          if (sees_in_mask(r, i, j, p.window)) {
            const int64_t element = p.runs[r.run].offset + r.first_key + j;
            ASSERT_TRUE(key_at.count(element)) << "a key of no run";
            ++times[{r.first_row + i, key_at[element]}];
            ++seen;
          }
        EXPECT_GT(seen, 0) << "row " << r.first_row + i;
      }
    }
    for (const FoldRows& unseen : rows.unseen)
      for (int64_t row = unseen.first_row; row < unseen.first_row + unseen.num_rows; ++row)
        EXPECT_EQ(folded[row]++, 0) << "row " << row;
  }
  for (int64_t row = 0; row < p.num_rows(); ++row) {
    EXPECT_GT(folded[row], 0) << "row " << row;
    for (size_t key = 0; key < p.key_positions.size(); ++key) {
      const bool seen = p.window.sees(p.query_positions[row], p.key_positions[key]);
      const auto found = times.find({row, static_cast<int64_t>(key)});
      ASSERT_EQ(found == times.end() ? 0 : found->second, seen ? 1 : 0)
          << "row " << row << ", key " << key << ", window " << p.window.tokens;
    }
  }
}

TEST(AttentionRectangles, OfEveryPairOfRangesAndWindowHaveEverySeenPairOnce) {
  for (int64_t first_query = 0; first_query <= 26; ++first_query)
    for (const int64_t rows : {1, 2, 5, 12})
      for (const Window window : {Window(), Window(1), Window(2), Window(4), Window(7), Window(20),
                                  Window::chunks_of(1), Window::chunks_of(4), Window::chunks_of(7),
                                  Window::chunks_of(12), Window::chunks_of(100)})
        expect_every_seen_pair_once(
            {positions({{first_query, first_query + rows}}), positions({{10, 17}}), {7}, window});
}

TEST(AttentionRectangles, OfJumpingPositionsHaveEverySeenPairOnce) {
  for (const bool gaps : {false, true})
    for (const Window window : {Window(), Window(3), Window(9), Window::chunks_of(9)}) {
      expect_every_seen_pair_once({positions({{4, 9}, {20, 26}}),
                                   positions({{0, 4}, {26, 30}, {4, 9}, {15, 26}}),
                                   {4, 4, 9, 24},
                                   window,
                                   gaps});
      expect_every_seen_pair_once(
          {{7, 3, 3, 12, 11}, {5, 4, 3, 9, 10, 11, 2, 12}, {3, 8}, window, gaps});
    }
}

TEST(AttentionRectangles, CutRowsThatAreTooMany) {
  for (const int64_t window : {0, 6})
    expect_every_seen_pair_once({positions({{10, 30}}), positions({{0, 30}}), {30}, window},
                                {1, 0, 8});
}

struct Summary {
  int64_t first_row, num_rows, run, first_key, num_keys;
  Mask mask;
  bool operator==(const Summary&) const = default;
};
std::vector<Summary> summary(const std::vector<RectangleRows>& all) {
  std::vector<Summary> result;
  for (const RectangleRows& rows : all)
    for (const Rectangle& r : rows.rectangles)
      result.push_back({r.first_row, r.num_rows, r.run, r.first_key, r.num_keys, r.mask});
  return result;
}

/// Four ranks, chunks of 10: rank 1 has [10, 20) and [60, 70).
TEST(AttentionRectangles, OfTheRingAreItsThreeCases) {
  const std::vector<int64_t> own = positions({{10, 20}, {60, 70}});
  EXPECT_EQ(
      summary(MaskedItem{own, own, {20}}.cut()),
      (std::vector<Summary>{{0, 10, 0, 0, 10, Mask::causal}, {10, 10, 0, 0, 20, Mask::causal}}))
      << "the late chunk sees the early one before its own, in one piece";
  EXPECT_EQ(summary(MaskedItem{own, positions({{0, 10}, {70, 80}}), {20}}.cut()),
            (std::vector<Summary>{{0, 10, 0, 0, 10, Mask::full}, {10, 10, 0, 0, 10, Mask::full}}))
      << "of a lower rank all see the early chunk";
  EXPECT_EQ(summary(MaskedItem{own, positions({{20, 30}, {50, 60}}), {20}}.cut()),
            (std::vector<Summary>{{10, 10, 0, 0, 20, Mask::full}}))
      << "of a higher rank the late chunk sees both";
}

TEST(AttentionRectangles, OfALongPrefixInPiecesAreOne) {
  // Chunks of an earlier prefill, dealt to two ranks, then the rows' own.
  const std::vector<int64_t> keys = positions({{0, 4}, {12, 16}, {16, 20}, {28, 32}, {32, 36}});
  const MaskedItem p{positions({{32, 36}}), keys, {8, 16, 20}};
  EXPECT_EQ(summary(MaskedItem(p).cut()), (std::vector<Summary>{{0, 4, 0, 0, 20, Mask::causal}}));
  MaskedItem apart = p;
  apart.gaps = true;
  EXPECT_EQ(summary(apart.cut()), (std::vector<Summary>{{0, 4, 0, 0, 8, Mask::full},
                                                        {0, 4, 2, 0, 8, Mask::full},
                                                        {0, 4, 4, 0, 4, Mask::causal}}));
  EXPECT_EQ(apart.cut()[0].rectangles[2].folds, (std::vector<FoldRows>{{0, 4, Fold::merge}}));
}

/// What each chunk has is a triangle of its own, without the keys before.
TEST(AttentionRectangles, OfChunksAreCausal) {
  EXPECT_EQ(
      summary(MaskedItem{positions({{15, 35}}), positions({{0, 35}}), {35}, Window::chunks_of(10)}
                  .cut()),
      (std::vector<Summary>{{0, 5, 0, 10, 10, Mask::causal},
                            {5, 10, 0, 20, 10, Mask::causal},
                            {15, 5, 0, 30, 5, Mask::causal}}));
}

TEST(AttentionRectangles, HaveNoMoreKeysThanAllowed) {
  for (const Window window : {Window(), Window(5), Window(30), Window::chunks_of(30)})
    for (const bool gaps : {false, true})
      for (const std::vector<int64_t>& ends : {std::vector<int64_t>{80}, {30, 33, 80}}) {
        MaskedItem p{positions({{40, 80}}), positions({{0, 80}}), ends};
        p.window = window;
        p.gaps = gaps;
        expect_every_seen_pair_once(p, {.min_rows = 1, .min_pairs = 0, .max_keys = 16});
      }
}

TEST(AttentionRectangles, LeaveSmallAndScatteredItemsToOthers) {
  const auto is_cut = [](MaskedItem p, const RectangleLimits& limits) {
    return cut_rectangles(p.args(), p.item(), limits).has_value();
  };
  const MaskedItem sequence{positions({{0, 100}}), positions({{0, 100}}), {100}};
  EXPECT_TRUE(is_cut(sequence, {100, 10000, 1000}));
  EXPECT_FALSE(is_cut(sequence, {101, 10000, 1000})) << "too few rows";
  EXPECT_FALSE(is_cut(sequence, {100, 10001, 1000})) << "too few pairs";
  EXPECT_FALSE(is_cut(sequence, {100, 10000, 50})) << "too few in each half";
  EXPECT_FALSE(is_cut({positions({{0, 100}}), positions({{200, 300}}), {100}}, take_all))
      << "nothing to see";
  MaskedItem scattered = sequence;
  for (int64_t& position : scattered.query_positions) position *= 2;
  EXPECT_FALSE(is_cut(scattered, take_all)) << "every row by itself";
}

}  // namespace
}  // namespace pecia::test
