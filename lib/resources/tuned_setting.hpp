// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sparse attention by a tuned file: the file and the job's goal become a share and levels.

#include <functional>
#include <vector>

#include "lib/comm/place.hpp"
#include "lib/resources/resources.hpp"

namespace pecia::resources {

/// Levels of the ranks by which a sequence is cut, as many as wanted if possible.
using LevelsHere = std::function<parallel::Levels(int count)>;

/// `places`: of the ranks by which sequences are cut (Resources::level_places).
LevelsHere levels_by_place(const std::vector<comm::RackServerGpu>& places);

/// Whether the job leaves its sparse attention to a tuned file.
bool is_tuned(const job::Job& job);

/// Does nothing unless is_tuned(job). Otherwise the file's choice for the job's goal replaces file,
/// goal and levels in job.attention and goes into `resources`, whose `why` says what is expected of
/// it. The goal `off` is a loss of 0. `resources` has its grid. `longest_tokens`: of the longest
/// prompt. Without `levels_here` the places of ranks are not compared. Throws InputError as
/// tune::read_tuned and tune::resolve do.
void settle_tuned(job::Job& job, const model::ModelConfig& config, int64_t longest_tokens,
                  const LevelsHere& levels_here, Resources& resources);

}  // namespace pecia::resources
