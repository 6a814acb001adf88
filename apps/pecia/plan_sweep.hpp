// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The best layouts of a job on a described cluster, as values and as text for people.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/pecia/plan_batch.hpp"
#include "lib/foresight/sweep.hpp"

namespace pecia::app {

/// {"batch", "plans": […], "knee", "left_out"} of a plan. `shapes`: the requests of which single
/// times are told, at least one. Traces of the last of them in the best layout are written into
/// `trace`, unless it is empty. Shows progress on stderr where it takes long.
nlohmann::ordered_json swept_plans(foresight::PassCosts& costs, foresight::Batches& batches,
                                   const foresight::SweepQuestion& question,
                                   const std::vector<foresight::RequestShape>& shapes,
                                   const std::filesystem::path& trace);

/// The table of a plan that has them, and how to run the best one.
std::string sweep_text(const nlohmann::ordered_json& plan);

}  // namespace pecia::app
