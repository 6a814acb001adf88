// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The layouts in which a batch ends first, on some numbers of ranks of a described cluster.

#include <functional>

#include "lib/foresight/batches.hpp"
#include "lib/foresight/layouts.hpp"
#include "lib/foresight/rank_memory.hpp"

namespace pecia::foresight {

enum class Pruning {
  none,   ///< every layout is played
  bounds  ///< a layout is left out once it cannot be better than the best one
};

/// What it takes to be preferred to something simpler: a smaller difference is less than what is
/// foreseen may be off.
inline constexpr double least_gain = 0.05;

/// What a layout is the best in.
enum class Aim {
  batch_end,   ///< the batch ends first
  first_token  ///< answers begin first after their arrival, on average
};

/// A layout in which the batch was played.
struct Foreseen {
  int ranks = 1;
  job::Job::Parallel parallel;  ///< with nothing left to decide but a ring that is chosen by rule
  resources::Resources resources;  ///< all but threads
  RankMemory memory;
  HowFar how_far = HowFar::played;    ///< its passes; alike: it costs too much to play them
  std::optional<BatchEnd> end;        ///< absent: it does not fit
  std::optional<ReplicaTimes> times;  ///< present with `end`
  double gpu_hours() const { return ranks * end->end_s / 3600; }
  /// Seconds that the aim is about. Requires that it fits.
  double seconds(Aim aim) const { return aim == Aim::batch_end ? end->end_s : end->mean_ttft_s; }
};

struct Sweep {
  /// The best first: by the aim, then by GPU-hours. A layout of which no pass is played has to gain
  /// `least_gain` to come before one that is. Where no layout of a number of ranks fits, the one
  /// that lacks least comes at the end.
  std::vector<Foreseen> plans;
  int64_t layouts = 0;  ///< legal ones, on all numbers of ranks
  /// Left out since they cannot be better than the best of their number of ranks. Where the job leaves
  /// teams that change open, these are also left out if they cannot gain `least_gain`, if of their
  /// block (SP × TP) no ring was played, and on more than 64 ranks once three of the most promising
  /// ones, in the order of their blocks' best rings, did not gain it.
  int64_t slower = 0;
  int64_t too_large = 0;  ///< do not fit
  /// Not compared, since that would cost too much. They may be better than the best.
  int64_t open = 0;
  int64_t passes = 0;  ///< played
};

struct SweepQuestion {
  std::vector<int> ranks;
  KeptDegrees kept;  ///< degrees that the job gives; its modes are kept where they are not auto
  Aim aim = Aim::batch_end;
  Pruning pruning = Pruning::bounds;
  /// Operations (Passes::cost) that may be spent on a number of ranks, for rings and again for teams
  /// that change. Absent: some millions with pruning on more than all_played_ranks ranks, or of more
  /// than 40 layouts by first tokens; else any.
  std::optional<double> operations = {};
  /// Is told how many of the layouts are decided.
  std::function<void(int64_t decided, int64_t all)> on_progress = {};
};

/// What a run in this layout would use, all but threads and kv_tokens.
resources::Resources layout_resources(const PassSetting& setting,
                                      const job::Job::Parallel& parallel, int ranks,
                                      Batches& batches);

/// Plays the batch in this layout. `batch_tokens`: in place of those of layout_resources. With more than
/// all_played_ranks ranks, passes that cost much are not played (Foreseen::how_far).
Foreseen played_in(Passes& passes, Batches& batches, const job::Job::Parallel& parallel, int ranks,
                   std::optional<int64_t> batch_tokens = {});

/// Asks for every number of ranks. Of layouts that are left out it is known that they are worse than
/// the best one, but for what the fit of pass times may be off (5 %). Throws InputError where a
/// number of ranks has no legal layout, with the reason.
///
/// Where SweepQuestion::operations are bounded, no more is played than those, counted alike everywhere:
/// layouts in the order of their least times, first rings and then teams that change. Where a layout's
/// passes cost more than is left, they take the time that one rank says (HowFar::alike); where the batch
/// alone does, the layout is left open. A layout that counts as slower may there be slower than what
/// one rank said of another.
Sweep sweep(Passes& passes, Batches& batches, const SweepQuestion& question);

/// What limits a batch in a layout: "compute", "memory bandwidth", "link server", "link rack", "link
/// system", or "memory": answers are made in small groups, since keys and values of more of them do
/// not fit.
std::string limit_of(const Foreseen& plan);

}  // namespace pecia::foresight
