// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "kernels/cuda/attention_plan.hpp"

namespace pecia::test {
namespace {

using namespace kernels;
using namespace kernels::cuda;

struct Problem {
  int64_t group = 1, num_kv_heads = 1, window = 0;
  RowInvariant row_invariant = RowInvariant::no;
  std::vector<int64_t> query_positions, key_positions;
  std::vector<AttentionItem> items;
  std::vector<KeyRun> runs;

  AttentionArgs args() const {
    static float nothing = 0;
    const auto rows = static_cast<int64_t>(query_positions.size());
    return {.q = TensorView(&nothing, DType::fp32, {rows, group * num_kv_heads, 1}),
            .query_positions = query_positions,
            .items = items,
            .runs = runs,
            .kv_dtype = DType::fp32,
            .num_kv_heads = num_kv_heads,
            .scale = 1,
            .window = window,
            .out = {},
            .lse = {},
            .row_invariant = row_invariant};
  }

  /// One sequence: the rows are the last of the keys, and the keys lie in runs that end at `ends`.
  static Problem sequence(int64_t rows, const std::vector<int64_t>& ends) {
    Problem p;
    p.key_positions.resize(ends.back());
    std::iota(p.key_positions.begin(), p.key_positions.end(), 0);
    p.query_positions.assign(p.key_positions.end() - rows, p.key_positions.end());
    int64_t begin = 0;
    for (const int64_t end : ends) {
      p.runs.push_back({nullptr, nullptr, 0, end - begin, p.key_positions.data() + begin});
      begin = end;
    }
    p.items = {{0, rows, 0, static_cast<int64_t>(ends.size())}};
    return p;
  }
};

/// How often each pair of (row, head of the group) and (run, key) is met by some tile.
void expect_every_seen_pair_once(const Problem& p, const PlanLimits& limits) {
  const AttentionArgs args = p.args();
  const AttentionPlan plan = plan_attention(args, limits);
  std::map<std::array<int64_t, 4>, int> times;
  std::map<std::pair<int64_t, int64_t>, int> written;
  std::vector<DeviceRun> runs;
  for (const KeyRun& run : p.runs)
    runs.push_back({nullptr, nullptr, 0, run.num_keys, run.positions, nullptr, nullptr});
  for (const TileList* list : {&plan.wide, &plan.narrow}) {
    std::set<int32_t> partials;
    for (const QueryTile& tile : list->query_tiles) {
      ASSERT_LE(tile.num_packed, list->tile_rows);
      if (tile.partial >= 0) {
        EXPECT_TRUE(partials.insert(tile.partial).second);
      }
      for (int index = 0; index < tile.num_packed; ++index) {
        const PackedRow row = unpack(tile, 0, p.group, index);
        if (tile.partial < 0) ++written[{row.row, row.head}];
        for (int64_t t = tile.first_key_tile; t < tile.end_key_tile; ++t) {
          const KeyTile& keys = plan.key_tiles[t];
          for (int key = 0; key < keys.num_keys; ++key) {
            const KeyPlace place = place_of(keys, key, runs.data());
            const int64_t position = p.runs[place.run].positions[place.key];
            EXPECT_TRUE(keys.positions.min <= position && position <= keys.positions.max);
            if (sees(p.query_positions[row.row], position, p.window))
              ++times[{row.row, row.head, place.run, place.key}];
          }
        }
      }
    }
    EXPECT_EQ(static_cast<int64_t>(partials.size()), list->num_partials);
    for (const PartialTile& tile : list->partial_tiles)
      for (int32_t index = 0; index < tile.num_packed; ++index)
        ++written[{tile.first_row + (tile.first_packed + index) / p.group,
                   (tile.first_packed + index) % p.group}];
  }
  for (const AttentionItem& item : p.items)
    for (int64_t row = item.first_row; row < item.first_row + item.num_rows; ++row)
      for (int64_t head = 0; head < p.group; ++head) {
        EXPECT_EQ((written[{row, head}]), 1) << "row " << row;
        for (int64_t r = item.first_run; r < item.first_run + item.num_runs; ++r)
          for (int64_t key = 0; key < p.runs[r].num_keys; ++key) {
            const bool seen = sees(p.query_positions[row], p.runs[r].positions[key], p.window);
            const auto found = times.find({row, head, r, key});
            ASSERT_EQ(found == times.end() ? 0 : found->second, seen ? 1 : 0)
                << "row " << row << ", head " << head << ", run " << r << ", key " << key;
          }
      }
}

TEST(AttentionPlan, MeetsEverySeenPairOnceAndWritesEveryRowOnce) {
  for (const int64_t group : {1, 3, 8})
    for (const int64_t window : {0, 50})
      for (const int64_t rows : {1, 2, 7, 130})
        for (const int64_t blocks : {1, 8, 100}) {
          Problem p = Problem::sequence(rows, {100, 100, 101, 164, 700});
          p.group = group;
          p.window = window;
          expect_every_seen_pair_once(p, {64, 16, blocks});
        }
}

TEST(AttentionPlan, KeepsItemsWithTheirRuns) {
  Problem p = Problem::sequence(40, {10, 300, 900});
  p.items = {{0, 3, 1, 2}, {3, 30, 0, 1}, {33, 1, 0, 0}, {34, 0, 0, 3}};
  p.group = 4;
  for (const RowInvariant row_invariant : {RowInvariant::no, RowInvariant::yes}) {
    p.row_invariant = row_invariant;
    expect_every_seen_pair_once(p, {64, 16, 20});
  }
}

/// Tiles of 64 keys from an item's first one on, whatever runs they are in, and one block for each.
TEST(AttentionPlan, OfRowInvarianceFollowsNeitherTheRunsNorTheBlocks) {
  for (const std::vector<int64_t>& ends :
       {std::vector<int64_t>{700}, {1, 2, 2, 63, 64, 130, 600, 700}}) {
    Problem p = Problem::sequence(1, ends);
    p.row_invariant = RowInvariant::yes;
    expect_every_seen_pair_once(p, {64, 16, 100});
    const AttentionPlan plan = plan_attention(p.args(), {64, 16, 100});
    ASSERT_EQ(plan.key_tiles.size(), 11u);
    for (size_t t = 0; t < plan.key_tiles.size(); ++t) {
      EXPECT_EQ(plan.key_tiles[t].num_keys, t < 10 ? 64 : 60);
      EXPECT_EQ(plan.key_tiles[t].positions.min, static_cast<int64_t>(64 * t));
    }
    EXPECT_EQ(plan.narrow.query_tiles.size(), 1u);
    EXPECT_TRUE(plan.narrow.partial_tiles.empty());
  }
}

TEST(AttentionPlan, DividesLongContextsOfFewRowsAmongTheBlocks) {
  Problem p = Problem::sequence(1, {64 * 100});
  p.group = 4;
  p.num_kv_heads = 2;
  const AttentionPlan plan = plan_attention(p.args(), {64, 16, 40});
  EXPECT_TRUE(plan.wide.query_tiles.empty());
  // 100 tiles on 40 / 2 blocks per KV head: five each.
  EXPECT_EQ(plan.narrow.query_tiles.size(), 20u);
  for (const QueryTile& tile : plan.narrow.query_tiles)
    EXPECT_EQ(tile.end_key_tile - tile.first_key_tile, 5);
  ASSERT_EQ(plan.narrow.partial_tiles.size(), 1u);
  EXPECT_EQ(plan.narrow.partial_tiles[0].num_partials, 20);
}

TEST(AttentionPlan, LeavesOutWhatNoRowSeesAndBeginsWithTheLongest) {
  Problem p = Problem::sequence(256, {256});
  const AttentionPlan plan = plan_attention(p.args(), {64, 16, 1});
  std::vector<int64_t> lengths;
  for (const QueryTile& tile : plan.wide.query_tiles)
    lengths.push_back(tile.end_key_tile - tile.first_key_tile);
  EXPECT_EQ(lengths, (std::vector<int64_t>{4, 3, 2, 1}));
}

}  // namespace
}  // namespace pecia::test
