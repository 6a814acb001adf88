// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The work of attention as values: made on the host (attention_plan.hpp), read by the kernels.
///
/// The rows of one item and the heads that share a KV head are packed, so that a KV head is read
/// once for all of its query heads: packed row p of an item stands for row p / group of the item
/// and head p % group of the KV head's group.
///
///     group 4, item of 2 rows     p   0 1 2 3 | 4 5 6 7     row    0 0 0 0 | 1 1 1 1
///                                                           head   0 1 2 3 | 0 1 2 3

#include <cstdint>

#include "kernels/cuda/host_device.hpp"
#include "kernels/cuda/visibility.hpp"

namespace pecia::kernels::cuda {

inline constexpr int keys_per_tile = 64;

/// KeyRun with pointers of the device.
struct DeviceRun {
  const void *k, *v;
  int64_t head_stride, num_keys;
  const int64_t* positions;
  const float *k_scales, *v_scales;
};

/// Bytes from where the runs say that keys, values and their scales are to where they are.
struct RunShift {
  int64_t k, v, k_scales, v_scales;

  bool operator==(const RunShift&) const = default;
};

/// Up to keys_per_tile keys from `first_key` of a run on: next to each other in it, or, where a
/// row's bits must not show how keys are cut into runs, going on in the runs after it.
struct KeyTile {
  int32_t run, num_keys;
  int64_t first_key;
  PositionRange positions;

  PECIA_HD bool within(const DeviceRun& first) const {
    return first_key + num_keys <= first.num_keys;
  }
};

/// Where a tile's key is.
struct KeyPlace {
  int32_t run;
  int64_t key;
};
PECIA_HD KeyPlace place_of(const KeyTile& tile, int key, const DeviceRun* runs) {
  KeyPlace place = {tile.run, tile.first_key + key};
  for (; place.key >= runs[place.run].num_keys; ++place.run) place.key -= runs[place.run].num_keys;
  return place;
}

/// Packed rows that a block works on, for each KV head, and the key tiles it may have to look at.
struct QueryTile {
  int64_t first_row;     ///< of the item, among the rows of q
  int64_t first_packed;  ///< packed row within the item
  int32_t num_packed;
  int32_t partial;  ///< −1: the block writes out and lse itself; else its place in the partials
  int64_t first_key_tile, end_key_tile;
  PositionRange positions;
};

/// A query tile whose keys are divided among several blocks: their partial results.
struct PartialTile {
  int64_t first_row, first_packed;
  int32_t num_packed, first_partial, num_partials;
};

struct PackedRow {
  int64_t row, head;
};
PECIA_HD PackedRow unpack(const QueryTile& tile, int64_t kv_head, int64_t group, int index) {
  const int64_t packed = tile.first_packed + index;
  return {tile.first_row + packed / group, kv_head * group + packed % group};
}

/// What a kernel gets beside the tiles.
struct AttentionParams {
  const float* q;                  ///< [rows, num_heads, head_dim]
  const int64_t* query_positions;  ///< [rows]
  const DeviceRun* runs;
  const KeyTile* key_tiles;
  const QueryTile* query_tiles;
  float *out, *lse;                  ///< [rows, num_heads, head_dim], [rows, num_heads]
  float *partial_out, *partial_lse;  ///< [partials, num_kv_heads, tile rows, head_dim], without dim
  RunShift shift;
  int64_t num_heads, num_kv_heads, head_dim, window;
  float scale;
  int32_t unused = 0;  ///< in place of padding: equal arguments are equal bytes

  PECIA_HD DeviceRun run(int32_t index) const {
    const DeviceRun there = runs[index];
    return {moved(there.k, shift.k),
            moved(there.v, shift.v),
            there.head_stride,
            there.num_keys,
            there.positions,
            static_cast<const float*>(moved(there.k_scales, shift.k_scales)),
            static_cast<const float*>(moved(there.v_scales, shift.v_scales))};
  }

  /// Of a tile's key; `first` is the tile's run.
  PECIA_HD int64_t key_position(const KeyTile& tile, const DeviceRun& first, int key) const {
    if (tile.within(first)) return first.positions[tile.first_key + key];
    const KeyPlace place = place_of(tile, key, runs);
    return runs[place.run].positions[place.key];
  }

 private:
  PECIA_HD static const void* moved(const void* data, int64_t bytes) {
    return static_cast<const char*>(data) + bytes;
  }
};

}  // namespace pecia::kernels::cuda
