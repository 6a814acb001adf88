// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <set>

#include "kernels/cuda/attention/attention_plan.hpp"

namespace pecia::test {
namespace {

using namespace kernels;
using namespace kernels::cuda;

struct Problem {
  int64_t group = 1, num_kv_heads = 1;
  Window window = {};
  RowInvariant row_invariant = RowInvariant::no;
  std::vector<int64_t> query_positions;
  std::vector<AttentionItem> items;
  std::vector<KeyRun> runs;

  AttentionArgs args() const {
    static float nothing = 0;
    const auto rows = static_cast<int64_t>(query_positions.size());
    return {.q = TensorView(&nothing, DType::fp32, {rows, group * num_kv_heads, 1}),
            .query_positions = query_positions,
            .items = items,
            .runs = runs,
            .keys = {},
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
    p.query_positions.resize(rows);
    std::iota(p.query_positions.begin(), p.query_positions.end(), ends.back() - rows);
    int64_t begin = 0;
    for (const int64_t end : ends) {
      p.runs.push_back({begin, 0, end - begin, begin});
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
  for (const TileList* list : {&plan.wide, &plan.narrow}) {
    std::set<int32_t> partials;
    for (const QueryTile& tile : list->query_tiles) {
      ASSERT_LE(tile.num_packed, list->tile_rows);
      if (tile.partial >= 0) {
        EXPECT_TRUE(partials.insert(tile.partial).second);
        const PartialTile& whole = list->partial_tiles.at(tile.partial_tile);
        EXPECT_TRUE(whole.first_partial <= tile.partial &&
                    tile.partial < whole.first_partial + whole.num_partials);
        EXPECT_TRUE(whole.first_row == tile.first_row && whole.first_packed == tile.first_packed &&
                    whole.num_packed == tile.num_packed);
      }
      for (int index = 0; index < tile.num_packed; ++index) {
        const PackedRow row = unpack(tile, 0, p.group, index);
        if (tile.partial < 0) ++written[{row.row, row.head}];
        for (KeyWalk walk = tile.keys; walk.left > 0; walk.advance(p.runs.data())) {
          const KeyTile keys = walk.tile();
          const PositionRange range = positions_of(keys, p.runs.data());
          for (int key = 0; key < keys.num_keys; ++key) {
            const KeyPlace place = place_of(keys, key, p.runs.data());
            const int64_t position = p.runs[place.run].position_of(place.key);
            EXPECT_TRUE(range.min <= position && position <= range.max);
            if (p.window.sees(p.query_positions[row.row], position))
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
            const bool seen = p.window.sees(p.query_positions[row], p.runs[r].position_of(key));
            const auto found = times.find({row, head, r, key});
            ASSERT_EQ(found == times.end() ? 0 : found->second, seen ? 1 : 0)
                << "row " << row << ", head " << head << ", run " << r << ", key " << key;
          }
      }
}

TEST(AttentionPlan, MeetsEverySeenPairOnceAndWritesEveryRowOnce) {
  for (const int64_t group : {1, 3, 8})
    for (const Window window : {Window(), Window(50), Window::chunks_of(50)})
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
    ASSERT_EQ(plan.narrow.query_tiles.size(), 1u);
    EXPECT_TRUE(plan.narrow.partial_tiles.empty());
    int64_t begin = 0;
    for (KeyWalk walk = plan.narrow.query_tiles[0].keys; walk.left > 0;
         walk.advance(p.runs.data()), begin += 64) {
      EXPECT_EQ(walk.tile().num_keys, std::min<int64_t>(64, 700 - begin));
      EXPECT_EQ(positions_of(walk.tile(), p.runs.data()).min, begin);
    }
    EXPECT_EQ(begin, 704);
  }
}

TEST(AttentionPlan, DividesLongContextsOfFewRowsAmongTheBlocks) {
  Problem p = Problem::sequence(1, {64 * 100});
  p.group = 4;
  p.num_kv_heads = 2;
  const AttentionPlan plan = plan_attention(p.args(), {64, 16, 20});
  EXPECT_TRUE(plan.wide.query_tiles.empty());
  // 100 tiles on 20 / 2 blocks per KV head: ten each.
  EXPECT_EQ(plan.narrow.query_tiles.size(), 10u);
  for (const QueryTile& tile : plan.narrow.query_tiles) EXPECT_EQ(tile.keys.left, 10 * 64);
  ASSERT_EQ(plan.narrow.partial_tiles.size(), 1u);
  EXPECT_EQ(plan.narrow.partial_tiles[0].num_partials, 10);
}

TEST(AttentionPlan, DividesLongPartsMoreFinely) {
  const auto plan_of = [](int64_t tiles) {
    const Problem p = Problem::sequence(1, {64 * tiles});
    return plan_attention(p.args(), {64, 16, 20}).narrow.query_tiles;
  };
  // 100 tiles on each of 20 blocks are too many.
  const std::vector<QueryTile> finer = plan_of(2000);
  EXPECT_EQ(finer.size(), 2000u / max_tiles_per_part + 1);
  EXPECT_EQ(finer[0].keys.left, 64 * max_tiles_per_part);
  EXPECT_EQ(plan_of(20 * blocks_to_balance * 200).size(), 20u * blocks_to_balance);
}

TEST(AttentionPlan, RoundsTheNumberOfPartsToTheNearest) {
  const auto parts = [](int64_t tiles) {
    const Problem p = Problem::sequence(1, {64 * tiles});
    return plan_attention(p.args(), {64, 16, 100}).narrow.query_tiles.size();
  };
  EXPECT_EQ(parts(2 * min_tiles_per_part + 1), 2u);
  EXPECT_EQ(parts(3 * min_tiles_per_part - 1), 3u);
}

TEST(AttentionPlan, LeavesShortContextsWhole) {
  const Problem p = Problem::sequence(1, {64 * min_tiles_per_part});
  EXPECT_EQ(plan_attention(p.args(), {64, 16, 100}).narrow.num_partials, 0);
}

TEST(AttentionPlan, LeavesOutWhatNoRowSeesAndBeginsWithTheLongest) {
  Problem p = Problem::sequence(256, {256});
  const AttentionPlan plan = plan_attention(p.args(), {64, 16, 1});
  std::vector<int64_t> lengths;
  for (const QueryTile& tile : plan.wide.query_tiles) lengths.push_back(tile.keys.left);
  EXPECT_EQ(lengths, (std::vector<int64_t>{256, 192, 128, 64}));
}

/// Runs of any lengths, strides and order, some of them empty; rows anywhere.
TEST(AttentionPlan, OfRandomRunsMeetsEverySeenPairOnce) {
  std::mt19937_64 random(20261122);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 200; ++round) {
    Problem p;
    p.group = draw(1, 4);
    p.num_kv_heads = draw(1, 2);
    p.window = draw(0, 1) * draw(1, 300);
    if (round % 3 == 0) p.window = Window::chunks_of(p.window.tokens);
    p.row_invariant = draw(0, 1) == 1 ? RowInvariant::yes : RowInvariant::no;
    for (int64_t item = draw(1, 3); item > 0; --item) {
      const auto first_row = static_cast<int64_t>(p.query_positions.size());
      const auto first_run = static_cast<int64_t>(p.runs.size());
      for (int64_t row = draw(0, 20); row > 0; --row) p.query_positions.push_back(draw(0, 900));
      for (int64_t run = draw(0, 12); run > 0; --run)
        p.runs.push_back(
            {0, 0, draw(0, 3) == 0 ? draw(0, 2) : draw(0, 150), draw(0, 900), draw(1, 9)});
      p.items.push_back({first_row, static_cast<int64_t>(p.query_positions.size()) - first_row,
                         first_run, static_cast<int64_t>(p.runs.size()) - first_run});
    }
    SCOPED_TRACE(testing::Message() << "round " << round);
    expect_every_seen_pair_once(p, {64, 16, draw(1, 40)});
  }
}

/// 64 decoding sequences: as many entries for 65536 tokens of context as for 8192.
TEST(AttentionPlan, DoesNotGrowWithTheContext) {
  const auto entries = [](int64_t context) {
    Problem p;
    p.group = 4, p.num_kv_heads = 8;
    for (int64_t i = 0; i < 64; ++i) {
      p.query_positions.push_back(context);
      p.runs.push_back({0, 0, context + 1, 0});
      p.items.push_back({i, 1, i, 1});
    }
    const PlanRoom room = exact_room(p.args(), plan_attention(p.args(), {64, 16, 264}));
    return std::vector<int64_t>{room.runs, room.wide.query_tiles, room.narrow.query_tiles,
                                room.narrow.partial_tiles, room.narrow.partials};
  };
  EXPECT_EQ(entries(65535), entries(524287));
  EXPECT_LE(entries(8191)[2], 5 * 64);
  EXPECT_LE(entries(65535)[2], 5 * 64);
}

/// 64 sequences of random lengths that grow, end and are followed by others, on a large GPU: the
/// arrays' room, and with it a step's graph, changes in few steps.
TEST(AttentionPlan, RoomLastsWhileSequencesGrow) {
  for (const int64_t longest : {2000, 16000}) {
    std::mt19937_64 random(static_cast<uint64_t>(longest));
    const auto draw = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    Problem p;
    p.group = 4, p.num_kv_heads = 8;
    std::vector<int64_t> left;
    for (int64_t i = 0; i < 64; ++i) {
      p.query_positions.push_back(draw(10, longest));
      p.runs.push_back({0, 0, p.query_positions.back() + 1, 0});
      p.items.push_back({i, 1, i, 1});
      left.push_back(draw(1, 400));
    }
    PlanRoom room;
    constexpr int steps = 1000;
    int made = 0;
    for (int step = 0; step < steps; ++step) {
      const PlanRoom before = room;
      room = lasting_room(exact_room(p.args(), plan_attention(p.args(), {64, 16, 528})), room);
      made += room != before;
      for (size_t i = 0; i < left.size(); ++i) {
        ++p.query_positions[i];
        if (--left[i] == 0) p.query_positions[i] = draw(10, longest), left[i] = draw(1, 400);
        p.runs[i].num_keys = p.query_positions[i] + 1;
      }
    }
    EXPECT_GE(room.narrow.partials, 64) << "nothing was divided";
    EXPECT_LE(made, steps / 20);
  }
}

TEST(AttentionPlan, RoomStaysWhereItIsEnoughAndNotFarTooMuch) {
  const auto room = [](int64_t needed, int64_t before) {
    PlanRoom now, last;
    now.narrow.query_tiles = needed, last.narrow.query_tiles = before;
    return lasting_room(now, last).narrow.query_tiles;
  };
  EXPECT_EQ(room(0, 200), 0);
  EXPECT_EQ(room(1, 0), 32);
  EXPECT_EQ(room(100, 0), 128);
  for (const int64_t needed : {100, 60, 128}) EXPECT_EQ(room(needed, 128), 128);
  EXPECT_EQ(room(129, 128), 192);
  EXPECT_EQ(room(10, 128), 32);
}

}  // namespace
}  // namespace pecia::test
