// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a run on so many ranks would make of a job's degrees and modes.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lib/resources/resources.hpp"

namespace pecia::app {

inline constexpr int max_ranks = 1 << 20;

/// dp × sp × tp, and cp where it is a number. InputError above max_ranks.
int fewest_ranks(const job::Job::Parallel& parallel);

/// Degrees, modes and the reasons of what was auto, or {"refused": why it would not start}.
/// `resources` receives the decisions, as far as they went.
nlohmann::ordered_json outcome(const job::Job& job, const model::ModelConfig& config, int ranks,
                               resources::Resources& resources);
std::string outcome_text(const nlohmann::ordered_json& outcome);

}  // namespace pecia::app
