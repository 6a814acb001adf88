// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Tells which keys a query sees, for single positions and for whole tiles
/// (kernels/api/attention.hpp).

#include <cstdint>

#include "kernels/cuda/shared/host_device.hpp"

namespace pecia::kernels::cuda {

PECIA_HD bool sees(int64_t query, int64_t key, int64_t window) {
  return key <= query && (window == 0 || key > query - window);
}

/// The least and the greatest of some positions.
struct PositionRange {
  int64_t min, max;
};

enum class TileVisibility { none, some, all };

/// Tells in which of all pairs of a query and a key of the ranges the query sees the key. `none`
/// and `all` are certain. `some` may be either.
PECIA_HD TileVisibility tile_visibility(PositionRange queries, PositionRange keys, int64_t window) {
  if (keys.min > queries.max || (window > 0 && keys.max <= queries.min - window))
    return TileVisibility::none;
  const bool all = keys.max <= queries.min && (window == 0 || keys.min > queries.max - window);
  return all ? TileVisibility::all : TileVisibility::some;
}

}  // namespace pecia::kernels::cuda
