// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sparse attention by a tuned file: the file and the job's goal become a share and levels.

#include <functional>
#include <optional>
#include <vector>

#include "lib/ranks/comm/place.hpp"
#include "lib/simulation/tune/resolve.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::tune {

/// Levels of the ranks by which a sequence is cut, as many as wanted if possible, or else those of
/// their places.
using LevelsHere = std::function<parallel::Levels(std::optional<int> count)>;

/// `places`: of the ranks by which sequences are cut (resources::Resources::level_places).
LevelsHere levels_by_place(const std::vector<comm::RackServerGpu>& places);

/// Whether the job leaves its sparse attention to a tuned file.
bool is_tuned(const job::Job& job);

/// What a tuned file is asked for, to ask again when the rates of this machine are known.
struct TunedQuestion {
  Tuned tuned;
  Wanted wanted;
};

/// Absent unless is_tuned(job). Otherwise the file's choice for the job's goal replaces file, goal,
/// levels and pipeline in job.attention and goes into `resources`, whose reasons say what is
/// expected of it. The goal `off` is a loss of 0. `resources` has its grid. `longest_tokens`: of
/// the longest prompt. Without `levels_here` the places of ranks are not compared. Throws
/// InputError as read_tuned and resolve do.
std::optional<TunedQuestion> settle_tuned(job::Job& job, const model::ModelConfig& config,
                                          int64_t longest_tokens, const LevelsHere& levels_here,
                                          resources::Resources& resources);

/// Chooses again for rates that are not those of the file's machine, and says whether it did.
/// Measurements that waver do not change the choice (TimeModel::is_of). Throws InputError
/// where the goal cannot be met with these rates.
bool settle_tuned_again(TunedQuestion question, const parallel::RingRates& rates, job::Job& job,
                        resources::Resources& resources);

}  // namespace pecia::tune
