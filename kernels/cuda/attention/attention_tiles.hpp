// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The work of attention as values. The host makes them (attention_plan.hpp), and the kernels read
/// them.
///
/// The rows of one item and the heads that share a KV head are packed, so that a KV head is read
/// once for all of its query heads. Packed row p of an item stands for row p / group of the item
/// and head p % group of the KV head's group.
///
///     group 4, item of 2 rows     p   0 1 2 3 | 4 5 6 7     row    0 0 0 0 | 1 1 1 1
///                                                           head   0 1 2 3 | 0 1 2 3

#include <cstdint>

#include "kernels/api/key_runs.hpp"
#include "kernels/cuda/attention/visibility.hpp"
#include "kernels/cuda/shared/host_device.hpp"

namespace pecia::kernels::cuda {

inline constexpr int keys_per_tile = 64;

/// Up to keys_per_tile keys of an item, from `first_key` of a run on. Where the run ends, they go
/// on in the runs after it.
struct KeyTile {
  int32_t run, num_keys;
  int64_t first_key;

  PECIA_HD bool within(const KeyRun& first) const { return first_key + num_keys <= first.num_keys; }
};

/// Returns the place of a tile's key.
PECIA_HD KeyPlace place_of(const KeyTile& tile, int key, const KeyRun* runs) {
  KeyPlace place = {tile.run, tile.first_key + key};
  for (; place.key >= runs[place.run].num_keys; ++place.run) place.key -= runs[place.run].num_keys;
  return place;
}

/// Returns the least and the greatest position of a tile's keys.
PECIA_HD PositionRange positions_of(const KeyTile& tile, const KeyRun* runs) {
  const KeyRun* run = runs + tile.run;
  int64_t key = tile.first_key, left = tile.num_keys;
  PositionRange range = {run->position_of(key), run->position_of(key)};
  for (;; ++run, key = 0) {
    const int64_t count = run->num_keys - key < left ? run->num_keys - key : left;
    if (count > 0) {
      const int64_t first = run->position_of(key), last = run->position_of(key + count - 1);
      range = {first < range.min ? first : range.min, last > range.max ? last : range.max};
    }
    left -= count;
    if (left == 0) return range;
  }
}

/// Goes through an item's keys tile by tile.
struct KeyWalk {
  int32_t run, left;  ///< left: keys from here to the end; none if it is not positive
  int64_t key;        ///< key of the run

  /// Returns the tile of up to `keys` keys from here on.
  PECIA_HD KeyTile tile(int keys = keys_per_tile) const {
    return {run, left < keys ? left : keys, key};
  }
  PECIA_HD void advance(const KeyRun* runs, int64_t keys = keys_per_tile) {
    left -= static_cast<int32_t>(keys);
    key += keys;
    if (left > 0)
      for (; key >= runs[run].num_keys; ++run) key -= runs[run].num_keys;
  }
};

/// The packed rows that a block works on, for each KV head, and the keys that it may have to look
/// at. A tile of zeros has neither.
struct QueryTile {
  int64_t first_row;     ///< first row of the item, among the rows of q
  int64_t first_packed;  ///< packed row within the item
  int32_t num_packed;
  int32_t partial;  ///< −1 if the block writes out and lse itself; else its place in the partials
  KeyWalk keys;
  PositionRange positions;   ///< positions of the rows
  int32_t partial_tile = 0;  ///< if it has a place in the partials: whose part it is
  int32_t unused = 0;
};

/// A walk, and what the queries see of the tile where it stands.
struct VisibleWalk {
  KeyWalk at;
  TileVisibility seen;
};

/// Returns the walk at the first tile of `keys` keys, from here on, of which a query may see one.
PECIA_HD VisibleWalk to_visible(const QueryTile& tile, KeyWalk walk, const KeyRun* runs,
                                const KernelWindow& window, int keys = keys_per_tile) {
  auto seen = TileVisibility::none;
  while (walk.left > 0 &&
         (seen = tile_visibility(tile.positions, positions_of(walk.tile(keys), runs), window)) ==
             TileVisibility::none)
    walk.advance(runs, keys);
  return {walk, seen};
}

/// The partial results of a query tile whose keys are divided among several blocks.
struct PartialTile {
  int64_t first_row, first_packed;
  int32_t num_packed, first_partial, num_partials;
};

struct PackedRow {
  int64_t row, head;
};
/// A plan has no item of 2³² packed rows. GPUs divide 32 bits in a quarter of the time of 64.
PECIA_HD PackedRow unpack(int64_t first_row, int64_t packed, int64_t kv_head, int64_t group) {
  const auto number = static_cast<uint32_t>(packed), heads = static_cast<uint32_t>(group);
  return {first_row + number / heads, kv_head * group + number % heads};
}
PECIA_HD PackedRow unpack(const QueryTile& tile, int64_t kv_head, int64_t group, int index) {
  return unpack(tile.first_row, tile.first_packed + index, kv_head, group);
}

/// The types in which results may be written.
enum class OutType : int32_t { fp32, bf16, fp16 };

/// What a kernel gets: the tiles and all that it reads besides.
struct AttentionParams {
  const void* q;                   ///< [rows, num_heads, head_dim]
  const int64_t* query_positions;  ///< [rows]
  const KeyRun* runs;
  StoredKeys keys;
  const QueryTile* query_tiles;
  const PartialTile* partial_tiles;
  void* out;   ///< [rows, num_heads, value_dim]
  float* lse;  ///< [rows, num_heads]
  /// [partials, num_kv_heads, tile rows, value_dim]. The lse has no value_dim.
  float *partial_out, *partial_lse;
  /// Counts the blocks that have written their partials, [partial tiles, num_kv_heads]. It is zero
  /// before and after a kernel.
  int32_t* arrived;
  int64_t num_heads, num_kv_heads, head_dim;
  KernelWindow window;
  int64_t value_dim;  ///< a value is the first value_dim of its head_dim numbers
  float scale;
  bool q_is_rounded;  ///< to the type of products (ProductOf the keys' type); else it is fp32
  OutType out_type;
};

}  // namespace pecia::kernels::cuda
