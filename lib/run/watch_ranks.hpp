// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Lets watch::Watch watch the ranks of a run.

#include <spdlog/logger.h>

#include <filesystem>

#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/watch/watch.hpp"
#include "lib/work/job/job.hpp"

namespace pecia::run {

/// Makes a board in the output folder and starts `watch`. Returns the board's folder, or "" where
/// nobody watches: on one rank, or where no board can be made, of which rank 0 warns. `stage`: of this
/// rank, where there are several. Collective.
std::filesystem::path watch_ranks(watch::Watch& watch, const job::Job& job,
                                  comm::Communicator& world, spdlog::logger& log,
                                  std::optional<int> stage);

}  // namespace pecia::run
