// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the blocks of attention do, decided on the host from positions and lengths: pure, tested
/// without a GPU. Costs a pass over the positions of rows and keys.

#include <vector>

#include "kernels/api/attention.hpp"
#include "kernels/cuda/attention_tiles.hpp"

namespace pecia::kernels::cuda {

/// Work of one kernel: every row of every item is in one query tile, or in the partial tiles of
/// one.
struct TileList {
  int64_t tile_rows = 0;
  std::vector<QueryTile> query_tiles;  ///< the longest first
  std::vector<PartialTile> partial_tiles;
  int64_t num_partials = 0;
};

struct AttentionPlan {
  std::vector<KeyTile> key_tiles;
  TileList wide;    ///< items with many packed rows
  TileList narrow;  ///< items with at most as many as a narrow tile has
};

/// Rows per tile of the two kernels, and how many blocks keep the device busy: tiles with many keys
/// are divided when there are fewer.
struct PlanLimits {
  int64_t wide_rows, narrow_rows;
  int64_t blocks_wanted;

  bool operator==(const PlanLimits&) const = default;
};

/// Of fewer keys than this, a part is not worth its merging.
inline constexpr int64_t min_tiles_per_part = 4;

/// With RowInvariant::yes an item's key tiles are all its keys in their order, keys_per_tile each,
/// wherever its runs end, and query tiles are not divided.
AttentionPlan plan_attention(const AttentionArgs& args, const PlanLimits& limits);

}  // namespace pecia::kernels::cuda
