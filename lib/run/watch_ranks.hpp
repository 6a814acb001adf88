// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A run's ranks under the eyes of watch::Watch.

#include <spdlog/logger.h>

#include <filesystem>

#include "lib/comm/communicator.hpp"
#include "lib/job/job.hpp"
#include "lib/watch/watch.hpp"

namespace pecia::run {

/// Makes a board in the output folder and lets `watch` begin; the folder's path, "" where nobody
/// watches: of one rank, and where no board can be made, of which rank 0 warns. Collective.
std::filesystem::path watch_ranks(watch::Watch& watch, const job::Job& job,
                                  comm::Communicator& world, spdlog::logger& log);

}  // namespace pecia::run
