// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The batch run behind `pecia run`.

#include <filesystem>
#include <string>
#include <vector>

#include "lib/comm/communicator.hpp"
#include "lib/report/startup.hpp"
#include "lib/watch/watch.hpp"

namespace pecia::run {

struct RunOptions {
  std::filesystem::path job_file;
  std::vector<std::string> overrides;  ///< "key.path=value"
  bool fresh = false;                  ///< start over instead of continuing the output folder's run
  bool retry_failed = false;           ///< take failed turns again
};

/// Runs the job on all ranks of `world`; collective. Returns the exit code, the same on every rank:
/// 0 done, 3 some requests failed, 75 drained and resumable. Throws InputError before anything
/// starts. `watch` watches the ranks from when the job is known, and after the run until it ends.
/// `startup` has timed what was before; its phases until the first pass go into the report.
int run_job(const RunOptions& options, comm::Communicator& world, watch::Watch& watch,
            report::Startup& startup);

}  // namespace pecia::run
