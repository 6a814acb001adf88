// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What is behind `pecia tune`: runs of calibration prompts, and the models that are fitted to
/// them.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/core/activity.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/simulation/tune/tuned.hpp"

namespace pecia::run {

struct TuneOptions {
  std::filesystem::path job_file;
  std::filesystem::path calibration;            ///< prompt shard whose requests have one turn each
  std::filesystem::path output = "tuned.json";  ///< the runs lie in a folder beside it
  std::vector<std::string> overrides;           ///< "key.path=value"
  std::vector<double> drops{0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7};
  /// How shares are dealt out over layers and heads, by name; even is among them.
  std::string deals = "even";
  int rounds = 2;  ///< of runs for times: a prompt's best time counts
};

struct TuneOutcome {
  int exit_code = 0;                 ///< the same on every rank: 0, or 75 after a signal
  std::optional<tune::Tuned> tuned;  ///< on rank 0, if the code is 0
};

/// Runs the calibration prompts densely and with every drop at every number of levels that the
/// ranks' places allow (or only with the job's number), fits the models, and writes the file. Each
/// of these has a run for its time in every round, and one with likelihoods and questions of
/// retrieval. Collective over `world`. Throws InputError before any weight is read where prompts, grid or options do not
/// allow it. `end_job` and `activity` are those of a watch over all ranks; each run has a watch of
/// its own.
TuneOutcome tune_job(const TuneOptions& options, comm::Communicator& world,
                     const std::function<void()>& end_job,
                     const std::shared_ptr<Activity>& activity);

}  // namespace pecia::run
