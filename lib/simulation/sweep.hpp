// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The layouts in which a batch ends first, on some numbers of ranks of a described cluster.

#include <functional>

#include "lib/simulation/layout_forecast.hpp"

namespace pecia::simulation {

enum class Pruning {
  none,   ///< every layout is played
  bounds  ///< a layout is left out once it cannot be better than the best one
};

/// What became of the legal layouts.
struct LayoutCounts {
  int64_t layouts = 0;  ///< legal ones, on all numbers of ranks
  /// Left out since they cannot be better than the best of their number of ranks. Where the job leaves
  /// teams that change open, these are also left out if they cannot gain `least_gain`, if of their
  /// block (SP × TP) no ring was played, and on more than 64 ranks once three of the most promising
  /// ones, in the order of their blocks' best rings, did not gain it.
  int64_t slower = 0;
  int64_t too_large = 0;  ///< do not fit
  /// Not compared, since that would take too long. They may be better than the best.
  int64_t open = 0;
};

struct Sweep {
  /// The best first: by the aim, then by GPU-hours. A layout of which no pass is played has to gain
  /// `least_gain` to come before one that is. Where no layout of a number of ranks fits, the one
  /// that lacks least comes at the end.
  std::vector<LayoutForecast> plans;
  LayoutCounts counts;
  int64_t passes = 0;  ///< replayed
};

struct SweepQuestion {
  std::vector<int> ranks;
  KeptDegrees kept;  ///< degrees that the job gives; its modes are kept where they are not auto
  Aim aim = Aim::batch_end;
  Pruning pruning = Pruning::bounds;
  /// Operations (PassCosts::replay_effort) that may be spent on a number of ranks, for rings and again
  /// for teams that change. Absent: some millions with pruning on more than all_played_ranks ranks, or
  /// of more than 40 layouts by first tokens; else any.
  std::optional<double> operations = {};
  /// Is told how many of the layouts are decided.
  std::function<void(int64_t decided, int64_t all)> on_progress = {};
};

/// Asks for every number of ranks. Of layouts that are left out it is known that they are worse than
/// the best one, but for what the fit of pass times may be off (5 %). Throws InputError where a
/// number of ranks has no legal layout, with the reason.
///
/// Where SweepQuestion::operations are bounded, no more is played than those, counted alike everywhere:
/// layouts in the order of their least times, first rings and then teams that change. Where a layout's
/// passes take more than is left, they have the time that one rank says (Fidelity::one_rank); where the
/// batch alone does, the layout is left open. A layout that counts as slower may there be slower than
/// what one rank said of another.
Sweep sweep(PassCosts& costs, Batches& batches, const SweepQuestion& question);

}  // namespace pecia::simulation
