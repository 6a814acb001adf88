// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The batch run behind `pecia run`.

#include <filesystem>
#include <string>
#include <vector>

#include "lib/base/report/startup.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/watch/watch.hpp"

namespace pecia::run {

struct RunOptions {
  std::filesystem::path job_file;
  std::vector<std::string> overrides;  ///< "key.path=value"
  bool fresh = false;          ///< start over instead of continuing the run in the output folder
  bool retry_failed = false;   ///< run failed turns again
  bool by_rule = false;        ///< nothing of the layout is chosen by foreseen times
  bool quiet = false;          ///< log only warnings and errors
  bool counts_shares = false;  ///< the report says how tokens share the attention they receive
  bool rounds = false;         ///< further rounds come on standard input (rounds.hpp)
};

/// Runs the job on all ranks of `world`, and with `rounds` every round that is asked for; collective.
/// Returns the exit code, the same on every rank: 0 done, 3 some requests failed, 75 drained and
/// resumable. Throws InputError before anything of a round starts. `watch` watches the ranks from
/// the moment the job is known until `watch` itself ends. `startup` has timed the phases before
/// this call; the report has its phases until the first pass.
int run_job(const RunOptions& options, comm::Communicator& world, watch::Watch& watch,
            report::Startup& startup);

}  // namespace pecia::run
