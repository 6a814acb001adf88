// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace pecia::parallel {

/// What a level of sparse attention attends to (levels.hpp).
enum class Geometry : uint8_t {
  disjoint,  ///< only pairs that no lower level covers
  nested     ///< all pairs of its segments, so that near pairs count once for each level
};

}  // namespace pecia::parallel
