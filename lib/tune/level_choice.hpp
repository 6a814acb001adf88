// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How much of a prompt's attention each level of sparse attention does.

#include <vector>

#include "lib/parallel/levels.hpp"

namespace pecia::tune {

/// Levels that the ranks may have, with the work of each.
struct LevelChoice {
  parallel::Levels levels;
  std::vector<double> shares;  ///< level_shares of them

  int count() const { return levels.count(); }
};

/// By level: its pairs of a query and a key before it, where nothing is dropped, as a share of all
/// such pairs of a prompt whose ranks hold equal parts. With Geometry::disjoint they add up to 1.
///
///     4 ranks, 2 levels, disjoint     1/4 within the ranks, 3/4 between them
std::vector<double> level_shares(const parallel::Levels& levels, parallel::Geometry geometry);

/// The pairs that are attended with this drop, as a share of dense attention's. A level attends
/// those of its queries and keys that it keeps.
double attended(const std::vector<double>& shares, double drop);

/// The one with so many levels; null where there is none.
const LevelChoice* find(const std::vector<LevelChoice>& choices, int levels);

}  // namespace pecia::tune
