// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A cluster file that fits what runs took.

#include <filesystem>
#include <vector>

#include "lib/simulation/calibration.hpp"

namespace pecia::settle {

/// Fits the cluster to runs and timed ops (simulation/calibration.hpp). A folder is a run's output:
/// the batch is played in its layout, and its report tells how long products, attention and other
/// ops took. A file has lines of `pecia-bench ops --json`. Where the cluster describes the ranks of
/// the runs, it is kept for later ones (settle/measure/kept_cluster.hpp). Throws InputError naming
/// the folder where a run has no report, is unfinished, had several starts, or has failed turns, and
/// where its model or prompts are gone; for a file as simulation::timed_ops does.
simulation::Calibration calibrate(const std::vector<std::filesystem::path>& sources,
                                  const cluster_files::Cluster& cluster);

}  // namespace pecia::settle
