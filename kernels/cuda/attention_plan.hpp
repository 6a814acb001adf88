// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the blocks of attention do, decided on the host from positions and lengths: pure, tested
/// without a GPU. Costs as much as there are rows, runs and blocks, however long the runs are.

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

/// An item's key tiles are its keys in their order, keys_per_tile each from the first on, wherever
/// its runs end; a query tile has those from the first to the last that it sees a key of. With
/// RowInvariant::yes query tiles are not divided.
AttentionPlan plan_attention(const AttentionArgs& args, const PlanLimits& limits);

/// For how many entries the arrays of a plan have room on the device. Those beyond its own are
/// zeros, which mean nothing to do.
struct PlanRoom {
  int64_t runs = 0;
  struct List {
    int64_t query_tiles = 0, partial_tiles = 0, partials = 0;
    bool operator==(const List&) const = default;
  } wide, narrow;
  bool operator==(const PlanRoom&) const = default;
};

/// What the plan needs.
PlanRoom exact_room(const AttentionArgs& args, const AttentionPlan& plan);

/// Room for the plan, and for sequences that grow after it: as much as `before`, the room of the
/// step before, where that is enough and not far too much. So from step to step the arrays stay
/// where they are, and as long.
PlanRoom lasting_room(const PlanRoom& needed, const PlanRoom& before);

}  // namespace pecia::kernels::cuda
