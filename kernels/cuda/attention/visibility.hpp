// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Tells which keys a query sees, for single positions and for whole tiles
/// (kernels/api/attention.hpp).

#include <cstdint>

#include "kernels/api/window.hpp"
#include "kernels/cuda/shared/host_device.hpp"

namespace pecia::kernels::cuda {

/// A window without padding, since what kernels get is compared byte by byte.
struct KernelWindow {
  int64_t tokens;
  int64_t chunked;  ///< 0 or 1

  KernelWindow() = default;
  KernelWindow(Window window) : tokens(window.tokens), chunked(window.chunked()) {}  // NOLINT

  PECIA_HD int64_t first_seen(int64_t position) const {
    return (chunked != 0 ? Window::chunks_of(tokens) : Window(tokens)).first_seen(position);
  }
};

/// The positions of the keys that a row sees.
struct Sight {
  int64_t first, last;

  PECIA_HD bool has(int64_t key) const { return key >= first && key <= last; }
};
PECIA_HD Sight sight_of(int64_t position, const KernelWindow& window) {
  return {window.first_seen(position), position};
}

/// The least and the greatest of some positions.
struct PositionRange {
  int64_t min, max;
};

enum class TileVisibility { none, some, all };

/// Tells in which of all pairs of a query and a key of the ranges the query sees the key. `none`
/// and `all` are certain. `some` may be either. No later row sees an earlier key than the row before.
PECIA_HD TileVisibility tile_visibility(PositionRange queries, PositionRange keys,
                                        const KernelWindow& window) {
  if (keys.min > queries.max || keys.max < window.first_seen(queries.min))
    return TileVisibility::none;
  const bool all = keys.max <= queries.min && keys.min >= window.first_seen(queries.max);
  return all ? TileVisibility::all : TileVisibility::some;
}

}  // namespace pecia::kernels::cuda
