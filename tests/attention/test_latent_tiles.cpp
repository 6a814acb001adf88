// SPDX-License-Identifier: Apache-2.0
/// Calls whose keys are made from latents, cut into tiles.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lib/base/core/random.hpp"
#include "lib/model/attention/latent_tiles.hpp"

namespace pecia::attention {
namespace {

using kernels::AttentionItem;
using kernels::KeyRun;

constexpr int64_t dim = 5;  // elements of a key

struct Call {
  std::vector<int64_t> positions;
  std::vector<AttentionItem> items;
  std::vector<KeyRun> runs;

  std::vector<LatentTile> tiles(int64_t most) const {
    return latent_tiles(positions, items, runs, dim, most);
  }
};

/// Items of up to 6 rows and 4 runs, whose keys stand before and after them; each run has its own
/// place in memory.
Call random_call(uint64_t seed) {
  Call call;
  uint64_t drawn = seed;
  const auto draw = [&](int64_t below) {
    drawn = mix(drawn, 1);
    return static_cast<int64_t>(drawn % static_cast<uint64_t>(below));
  };
  const int64_t items = draw(6);
  for (int64_t i = 0; i < items; ++i) {
    AttentionItem item{std::ssize(call.positions), draw(7), std::ssize(call.runs), draw(5)};
    for (int64_t row = 0; row < item.num_rows; ++row) call.positions.push_back(draw(80));
    for (int64_t run = 0; run < item.num_runs; ++run)
      call.runs.push_back({std::ssize(call.runs) * 1000 * dim, 7, draw(20), draw(60), 1 + draw(3)});
    call.items.push_back(item);
  }
  return call;
}

TEST(LatentTiles, HaveEachPairOnceAndNoMoreTokensThanTheyMay) {
  int64_t cut = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Call call = random_call(seed);
    const int64_t most = 1 + static_cast<int64_t>(seed % 30);
    using Pair = std::pair<int64_t, int64_t>;  // a row, and where a key's latents are
    std::multiset<Pair> found, wanted;
    std::set<int64_t> begun;  // rows
    for (const LatentTile& tile : call.tiles(most)) {
      int64_t tokens = 0;
      for (const KeyRun& run : tile.runs) tokens += run.num_keys;
      EXPECT_EQ(tokens, tile.tokens);
      EXPECT_LE(tokens, most);
      ASSERT_FALSE(tile.items.empty());
      EXPECT_TRUE(tile.begins || tile.items.size() == 1);
      cut += !tile.begins;
      for (const AttentionItem& item : tile.items)
        for (int64_t row = item.first_row; row < item.first_row + item.num_rows; ++row) {
          EXPECT_EQ(begun.insert(row).second, tile.begins) << "row " << row;
          for (int64_t r = item.first_run; r < item.first_run + item.num_runs; ++r)
            for (int64_t key = 0; key < tile.runs.at(r).num_keys; ++key)
              if (tile.runs[r].position_of(key) <= call.positions[row])
                found.insert({row, tile.runs[r].offset + key * dim});
        }
    }
    for (const AttentionItem& item : call.items)
      for (int64_t row = item.first_row; row < item.first_row + item.num_rows; ++row)
        for (int64_t r = item.first_run; r < item.first_run + item.num_runs; ++r)
          for (int64_t key = 0; key < call.runs[r].num_keys; ++key)
            if (call.runs[r].position_of(key) <= call.positions[row])
              wanted.insert({row, call.runs[r].offset + key * dim});
    ASSERT_EQ(found, wanted) << "seed " << seed;
    EXPECT_EQ(std::ssize(begun), std::ssize(call.positions)) << "each row has a result";
  }
  EXPECT_GT(cut, 500);
}

TEST(LatentTiles, LeaveOutWhatNoRowSees) {
  const Call call{{10, 11}, {{0, 2, 0, 2}}, {{0, 0, 8, 0, 2}, {500, 0, 9, 12}}};
  const auto tiles = call.tiles(100);
  ASSERT_EQ(tiles.size(), 1u);
  EXPECT_EQ(tiles[0].runs, (std::vector<KeyRun>{{0, 0, 6, 0, 2}}));
  EXPECT_TRUE(call.tiles(5)[0].begins);
  EXPECT_FALSE(call.tiles(5)[1].begins);
}

}  // namespace
}  // namespace pecia::attention
