// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shows how a run on a given number of ranks would resolve a job's degrees and modes.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lib/resources/resources.hpp"

namespace pecia::app {

/// Plans are for so many ranks at most, which they say in seconds; with times, in some tens of them.
inline constexpr int max_ranks = 1 << 16, max_played_ranks = 1 << 13;

/// dp × sp × tp, times cp where it is a number. Throws InputError above max_ranks.
int fewest_ranks(const job::Job::Parallel& parallel);

/// Degrees, modes and the reasons for automatic ones, or {"refused": why the run would not start}.
/// `resources` receives the decisions, as far as they were made.
nlohmann::ordered_json outcome(const job::Job& job, const model::ModelConfig& config, int ranks,
                               resources::Resources& resources);
std::string outcome_text(const nlohmann::ordered_json& outcome);

}  // namespace pecia::app
