// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A cluster file that fits what runs took.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lib/machines/cluster.hpp"

namespace pecia::app {

/// Fits the cluster to runs and timed ops (foresight/calibration.hpp). A folder is a run's output: the batch
/// is played in its layout, and its report tells how long products, attention and other ops took. A
/// file has lines of `bench_ops --json` (foresight/calibration.hpp).
/// Returns {"runs", "factors", "kept", "residuals"} and replaces the cluster. Where it describes the
/// ranks of the runs, it is kept for later ones (measure/kept_cluster.hpp). Throws InputError naming the
/// folder where a run has no report, is unfinished, had several starts, or has failed turns, and where
/// its model or prompts are gone; for a file as timed_ops does.
nlohmann::ordered_json calibrate(const std::vector<std::filesystem::path>& sources,
                                 machines::Cluster& cluster);

/// The residuals of a plan that is calibrated, as a table.
std::string calibration_text(const nlohmann::ordered_json& calibration);

}  // namespace pecia::app
