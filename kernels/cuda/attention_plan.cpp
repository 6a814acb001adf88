// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention_plan.hpp"

#include <algorithm>
#include <utility>

namespace pecia::kernels::cuda {
namespace {

PositionRange range_of(const int64_t* positions, int64_t count) {
  const auto [min, max] = std::minmax_element(positions, positions + count);
  return {*min, *max};
}

/// Tiles of every run, one run after the other; where each run's begin.
std::vector<int64_t> cut_keys(std::span<const KeyRun> runs, std::vector<KeyTile>& tiles) {
  std::vector<int64_t> first_tile = {0};
  for (size_t r = 0; r < runs.size(); ++r) {
    for (int64_t key = 0; key < runs[r].num_keys; key += keys_per_tile) {
      const int64_t count = std::min<int64_t>(keys_per_tile, runs[r].num_keys - key);
      tiles.push_back({static_cast<int32_t>(r), static_cast<int32_t>(count), key,
                       range_of(runs[r].positions + key, count)});
    }
    first_tile.push_back(static_cast<int64_t>(tiles.size()));
  }
  return first_tile;
}

/// Tiles of the item's runs as if they were one; first and end of them.
std::pair<int64_t, int64_t> cut_joined_keys(std::span<const KeyRun> runs, const AttentionItem& item,
                                            std::vector<KeyTile>& tiles) {
  const auto first = static_cast<int64_t>(tiles.size());
  int64_t room = 0;
  for (int64_t r = item.first_run; r < item.first_run + item.num_runs; ++r)
    for (int64_t key = 0; key < runs[r].num_keys;) {
      const int64_t count =
          std::min(room == 0 ? int64_t{keys_per_tile} : room, runs[r].num_keys - key);
      const PositionRange range = range_of(runs[r].positions + key, count);
      if (room == 0) {
        tiles.push_back({static_cast<int32_t>(r), 0, key, range});
        room = keys_per_tile;
      }
      KeyTile& tile = tiles.back();
      tile.num_keys += static_cast<int32_t>(count);
      tile.positions = {std::min(tile.positions.min, range.min),
                        std::max(tile.positions.max, range.max)};
      key += count;
      room -= count;
    }
  return {first, static_cast<int64_t>(tiles.size())};
}

/// Leaves out the tiles at both ends that no query sees.
void trim(QueryTile& tile, const std::vector<KeyTile>& key_tiles, int64_t window) {
  const auto hidden = [&](int64_t t) {
    return tile_visibility(tile.positions, key_tiles[t].positions, window) == TileVisibility::none;
  };
  while (tile.first_key_tile < tile.end_key_tile && hidden(tile.first_key_tile))
    ++tile.first_key_tile;
  while (tile.first_key_tile < tile.end_key_tile && hidden(tile.end_key_tile - 1))
    --tile.end_key_tile;
}

int64_t length(const QueryTile& tile) {
  return tile.end_key_tile - tile.first_key_tile;
}

/// Divides the longest tiles until there are about `blocks_wanted` blocks of equal work.
void divide(TileList& list, int64_t num_kv_heads, int64_t blocks_wanted) {
  int64_t total = 0;
  for (const QueryTile& tile : list.query_tiles) total += length(tile);
  const int64_t share =
      std::max(min_tiles_per_part, (total * num_kv_heads + blocks_wanted - 1) / blocks_wanted);
  if (static_cast<int64_t>(list.query_tiles.size()) * num_kv_heads >= blocks_wanted) return;

  std::vector<QueryTile> whole;
  std::swap(whole, list.query_tiles);
  for (const QueryTile& tile : whole) {
    const int64_t parts = (length(tile) + share - 1) / share;
    if (parts <= 1) {
      list.query_tiles.push_back(tile);
      continue;
    }
    list.partial_tiles.push_back({tile.first_row, tile.first_packed, tile.num_packed,
                                  static_cast<int32_t>(list.num_partials),
                                  static_cast<int32_t>(parts)});
    for (int64_t part = 0; part < parts; ++part) {
      QueryTile piece = tile;
      piece.first_key_tile = tile.first_key_tile + length(tile) * part / parts;
      piece.end_key_tile = tile.first_key_tile + length(tile) * (part + 1) / parts;
      piece.partial = static_cast<int32_t>(list.num_partials++);
      list.query_tiles.push_back(piece);
    }
  }
}

}  // namespace

AttentionPlan plan_attention(const AttentionArgs& args, const PlanLimits& limits) {
  AttentionPlan plan;
  plan.wide.tile_rows = limits.wide_rows;
  plan.narrow.tile_rows = limits.narrow_rows;
  const int64_t group = args.q.size(1) / args.num_kv_heads;
  const bool row_invariant = args.row_invariant == RowInvariant::yes;
  const std::vector<int64_t> first_tile =
      row_invariant ? std::vector<int64_t>() : cut_keys(args.runs, plan.key_tiles);
  for (const AttentionItem& item : args.items) {
    const auto [first_key_tile, end_key_tile] =
        row_invariant
            ? cut_joined_keys(args.runs, item, plan.key_tiles)
            : std::pair(first_tile[item.first_run], first_tile[item.first_run + item.num_runs]);
    const int64_t num_packed = item.num_rows * group;
    TileList& list = num_packed <= limits.narrow_rows ? plan.narrow : plan.wide;
    for (int64_t first = 0; first < num_packed; first += list.tile_rows) {
      const int64_t count = std::min(list.tile_rows, num_packed - first);
      const int64_t begin = first / group, end = (first + count - 1) / group + 1;
      QueryTile tile = {
          item.first_row,
          first,
          static_cast<int32_t>(count),
          -1,
          first_key_tile,
          end_key_tile,
          range_of(args.query_positions.data() + item.first_row + begin, end - begin)};
      trim(tile, plan.key_tiles, args.window);
      list.query_tiles.push_back(tile);
    }
  }
  for (TileList* list : {&plan.wide, &plan.narrow}) {
    if (!row_invariant) divide(*list, args.num_kv_heads, limits.blocks_wanted);
    std::stable_sort(list->query_tiles.begin(), list->query_tiles.end(),
                     [](const QueryTile& a, const QueryTile& b) { return length(a) > length(b); });
  }
  return plan;
}

}  // namespace pecia::kernels::cuda
