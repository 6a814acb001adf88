// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decides what the blocks of attention do, on the host, from positions and lengths. The code is
/// pure and is tested without a GPU. Its time grows with the rows, runs and blocks, however long
/// the runs are.

#include <vector>

#include "kernels/api/attention.hpp"
#include "kernels/cuda/attention/attention_tiles.hpp"

namespace pecia::kernels::cuda {

/// The work of one kernel. Each row of its items is in one query tile. If that tile is divided, the
/// row is in each of the tile's parts, and in one partial tile.
struct TileList {
  int64_t tile_rows = 0;
  std::vector<QueryTile> query_tiles;  ///< the longest first
  std::vector<PartialTile> partial_tiles;
  int64_t num_partials = 0;
};

struct AttentionPlan {
  TileList wide;    ///< items with many packed rows
  TileList narrow;  ///< items with at most the packed rows of a narrow tile
};

/// Rows per tile of the two kernels, and the number of blocks that keep the device busy. If there
/// are not many times as many blocks, tiles with many keys are divided.
struct PlanLimits {
  int64_t wide_rows, narrow_rows;
  int64_t blocks_wanted;

  bool operator==(const PlanLimits&) const = default;
};

/// A part has about as many key tiles as give each of blocks_wanted blocks one part. Fewer than
/// min_tiles_per_part are not worth their merging. With more than max_tiles_per_part the last blocks
/// do not end together, as some multiprocessors read faster than others. Measured on an H100 with 1,
/// 4 and 16 sequences of 8192 keys and one of 65536 (apps/results/h100.md). There are no more than
/// blocks_to_balance times blocks_wanted, or as many as there are tiles.
inline constexpr int64_t min_tiles_per_part = 8, max_tiles_per_part = 26, blocks_to_balance = 6;

/// Plans a call. An item's key tiles are its keys in their order, keys_per_tile each from the first
/// on, wherever its runs end. A query tile has the key tiles from the first to the last of which it
/// sees a key. With RowInvariant::yes query tiles are not divided.
AttentionPlan plan_attention(const AttentionArgs& args, const PlanLimits& limits);

/// The number of entries for which the arrays of a plan have room on the device. Entries beyond the
/// plan's own are zeros, which mean that there is nothing to do.
struct PlanRoom {
  int64_t runs = 0;
  struct List {
    int64_t query_tiles = 0, partial_tiles = 0, partials = 0;
    bool operator==(const List&) const = default;
  } wide, narrow;
  bool operator==(const PlanRoom&) const = default;
};

/// Returns the room that the plan needs.
PlanRoom exact_room(const AttentionArgs& args, const AttentionPlan& plan);

/// Returns room for the plan and for sequences that grow after it. It is `before`, the room of the
/// step before, if that is enough and not far too much. So from step to step the arrays keep their
/// places and their lengths.
PlanRoom lasting_room(const PlanRoom& needed, const PlanRoom& before);

}  // namespace pecia::kernels::cuda
