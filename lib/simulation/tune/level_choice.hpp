// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Numbers of levels among which a tuner chooses.

#include <vector>

#include "lib/ranks/parallel/level_time.hpp"

namespace pecia::tune {

/// Levels that the ranks may have, with the work of each.
struct LevelChoice {
  LevelChoice(parallel::Levels of_ranks, parallel::Geometry geometry)
      : levels(std::move(of_ranks)), loads(parallel::level_loads(levels, geometry)) {}

  parallel::Levels levels;
  std::vector<parallel::LevelLoad> loads;  ///< of levels 2 and up

  int count() const { return levels.count(); }
};

/// The choice with this number of levels; null where there is none.
const LevelChoice* find(const std::vector<LevelChoice>& choices, int levels);

}  // namespace pecia::tune
