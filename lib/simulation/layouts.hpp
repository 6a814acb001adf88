// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Every way in which a job could run on a number of ranks.

#include <optional>
#include <string>
#include <vector>

#include "lib/model/config/config.hpp"
#include "lib/work/job/job.hpp"

namespace pecia::simulation {

/// What a job says of its layout; what is absent is to be found.
struct KeptDegrees {
  std::optional<int> dp = {}, pp = 1, cp = {}, sp = {}, tp = {}, ep = {};
};

/// A job's `parallel` for each grid DP × PP × CP × SP × TP of `ranks` ranks and each legal pair of modes
/// (ranks/parallel/modes.hpp), with the degrees and modes that are kept, and with what the job says of
/// teams that change, of bits and of levels. A job with cp: auto that names no mode has layouts of
/// either kind, with and without such teams. A model with experts has layouts with and without
/// experts that are dealt out. Fewer stages come first, then more replicas, more of CP and more of SP.
/// Levels take ranks of SP for ranks of CP, so such grids count once. What this version refuses
/// of a job that it runs otherwise is left out. None: no grid of these ranks is legal for the model and
/// what is kept.
std::vector<job::Job::Parallel> layouts_of(int ranks, const job::Job& job, const KeptDegrees& kept,
                                           const model::ModelConfig& config);

/// Why there is none, and the nearest that is legal: the words of the legality table. Requires that
/// layouts_of is empty.
std::string why_no_layout(int ranks, const job::Job& job, const KeptDegrees& kept,
                          const model::ModelConfig& config);

}  // namespace pecia::simulation
