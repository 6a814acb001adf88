// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Turns a tuned file and a goal into one setting for a run.

#include <functional>
#include <optional>
#include <string>

#include "lib/simulation/tune/tuned.hpp"

namespace pecia::tune {

/// What a run knows of itself.
struct Wanted {
  std::string file;  ///< the tuned file, for messages
  std::string version, model_path, config_sha256;
  int cp = 1, tp = 1;
  parallel::Geometry geometry = parallel::Geometry::disjoint;
  std::optional<int> levels;               ///< absent: the best number of levels
  std::optional<parallel::Micros> micros;  ///< absent: the best numbers of micro-partitions
  /// The levels of the run's ranks, `count` levels if possible. Empty where the places of ranks
  /// are not known.
  std::function<parallel::Levels(int count)> levels_here;
  int64_t longest_tokens = 1;  ///< of the longest prompt
  Goal goal;
  /// What the run measures on its own machine; absent: as on the file's.
  std::optional<parallel::RingRates> rates;
};

struct Resolved {
  Setting setting;
  parallel::LayerDrops layers;  ///< empty: all drop the same
  std::string why;              ///< the setting and what is expected of it, in words
};

/// Throws InputError, naming what differs, where the file is not for this version, model, grid,
/// geometry or places; where it has not the wanted levels; and where the goal cannot be met, with
/// the best that can.
Resolved resolve(const Tuned& tuned, const Wanted& wanted);

}  // namespace pecia::tune
