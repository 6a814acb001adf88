// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/attention_plan.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::kernels::cuda {
namespace {

PositionRange range_of(const int64_t* positions, int64_t count) {
  const auto [min, max] = std::minmax_element(positions, positions + count);
  return {*min, *max};
}

/// From the first to the last key tile of the runs that the rows see a key of.
KeyWalk keys_of(const AttentionArgs& args, const AttentionItem& item, PositionRange rows) {
  const std::span<const KeyRun> runs = runs_of(args, item);
  const KeyRange seen = seen_keys(runs, rows.min, rows.max, args.window);
  PECIA_CHECK(seen.end <= std::numeric_limits<int32_t>::max(), "{} keys of one item", seen.end);
  if (seen.size() == 0) return {};
  const int64_t begin = seen.begin / keys_per_tile * keys_per_tile;
  const KeyPlace place = place_of(runs, begin);
  return {static_cast<int32_t>(item.first_run + place.run), static_cast<int32_t>(seen.end - begin),
          place.key};
}

/// In key tiles.
int64_t length(const QueryTile& tile) {
  return (tile.keys.left + keys_per_tile - 1) / keys_per_tile;
}

/// Divides the longest tiles into parts of about equal work.
void divide(TileList& list, const AttentionArgs& args, int64_t blocks_wanted) {
  const auto blocks = static_cast<int64_t>(list.query_tiles.size()) * args.num_kv_heads;
  if (blocks >= blocks_to_balance * blocks_wanted) return;
  int64_t total = 0;
  for (const QueryTile& tile : list.query_tiles) total += length(tile);
  const int64_t for_each = total * args.num_kv_heads / blocks_wanted;
  const int64_t share = std::max(
      {min_tiles_per_part, std::min(max_tiles_per_part, for_each), for_each / blocks_to_balance});

  std::vector<QueryTile> whole;
  std::swap(whole, list.query_tiles);
  for (const QueryTile& tile : whole) {
    const int64_t parts = (length(tile) + share / 2) / share;
    if (parts <= 1) {
      list.query_tiles.push_back(tile);
      continue;
    }
    const auto partial_tile = static_cast<int32_t>(list.partial_tiles.size());
    list.partial_tiles.push_back({tile.first_row, tile.first_packed, tile.num_packed,
                                  static_cast<int32_t>(list.num_partials),
                                  static_cast<int32_t>(parts)});
    QueryTile rest = tile;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t tiles = length(tile) * (part + 1) / parts - length(tile) * part / parts;
      const int64_t keys = std::min<int64_t>(tiles * keys_per_tile, rest.keys.left);
      QueryTile piece = rest;
      piece.keys.left = static_cast<int32_t>(keys);
      piece.partial = static_cast<int32_t>(list.num_partials++);
      piece.partial_tile = partial_tile;
      list.query_tiles.push_back(piece);
      rest.keys.advance(args.runs.data(), keys);
    }
  }
}

}  // namespace

AttentionPlan plan_attention(const AttentionArgs& args, const PlanLimits& limits) {
  AttentionPlan plan;
  plan.wide.tile_rows = limits.wide_rows;
  plan.narrow.tile_rows = limits.narrow_rows;
  const int64_t group = args.q.size(1) / args.num_kv_heads;
  for (const AttentionItem& item : args.items) {
    const int64_t num_packed = item.num_rows * group;
    PECIA_CHECK(num_packed <= std::numeric_limits<uint32_t>::max(), "{} rows × heads of one item",
                num_packed);
    TileList& list = num_packed <= limits.narrow_rows ? plan.narrow : plan.wide;
    for (int64_t first = 0; first < num_packed; first += list.tile_rows) {
      const int64_t count = std::min(list.tile_rows, num_packed - first);
      const int64_t begin = first / group, end = (first + count - 1) / group + 1;
      const PositionRange positions =
          range_of(args.query_positions.data() + item.first_row + begin, end - begin);
      list.query_tiles.push_back({item.first_row, first, static_cast<int32_t>(count), -1,
                                  keys_of(args, item, positions), positions});
    }
  }
  for (TileList* list : {&plan.wide, &plan.narrow}) {
    if (args.row_invariant == RowInvariant::no) divide(*list, args, limits.blocks_wanted);
    std::stable_sort(list->query_tiles.begin(), list->query_tiles.end(),
                     [](const QueryTile& a, const QueryTile& b) { return length(a) > length(b); });
  }
  return plan;
}

PlanRoom exact_room(const AttentionArgs& args, const AttentionPlan& plan) {
  const auto list = [](const TileList& of) {
    return PlanRoom::List{static_cast<int64_t>(of.query_tiles.size()),
                          static_cast<int64_t>(of.partial_tiles.size()), of.num_partials};
  };
  return {static_cast<int64_t>(args.runs.size()), list(plan.wide), list(plan.narrow)};
}

PlanRoom lasting_room(const PlanRoom& needed, const PlanRoom& before) {
  const auto entries = [](int64_t wanted, int64_t last) {
    constexpr int64_t unit = 32;
    if (wanted == 0) return wanted;  // nothing is launched for an empty array
    if (wanted <= last && last <= 4 * wanted + unit) return last;
    return (wanted + wanted / 4 + unit - 1) / unit * unit;
  };
  const auto list = [&](const PlanRoom::List& wanted, const PlanRoom::List& last) {
    return PlanRoom::List{entries(wanted.query_tiles, last.query_tiles),
                          entries(wanted.partial_tiles, last.partial_tiles),
                          entries(wanted.partials, last.partials)};
  };
  return {entries(needed.runs, before.runs), list(needed.wide, before.wide),
          list(needed.narrow, before.narrow)};
}

}  // namespace pecia::kernels::cuda
