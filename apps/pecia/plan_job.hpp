// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Answers the questions of `pecia plan`.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/simulation/plan_report.hpp"

namespace pecia::app {

struct PlanQuestion {
  std::filesystem::path job_file;      ///< empty: none, and `model` says of what model
  std::string model;                   ///< preset or folder instead of the job's; empty: the job's
  std::vector<std::string> overrides;  ///< of the job's values
  /// Empty: the number that the job's degrees give, with cp: auto as 1.
  std::vector<int64_t> ranks;
  std::string cluster;                 ///< preset or cluster file; empty: the GPUs below say it
  std::string gpu;                     ///< of servers without a file; empty: no times are foreseen
  std::optional<int> per_server;       ///< of these GPUs; absent: as their board has
  std::vector<std::string> calibrate;  ///< output folders of runs that the cluster is fitted to
  std::filesystem::path
      cluster_file;             ///< where the cluster is written, fitted or not; empty: nowhere
  std::filesystem::path trace;  ///< folder for traces of the last request; empty: none
  /// PROMPT[+CACHED][:NEW][xCOUNT] in place of the job's prompts; none: the job's
  std::vector<std::string> requests;
  std::filesystem::path prompts;  ///< a shard in place of the job's prompts; empty: none

  bool on_cluster() const { return !cluster.empty() || !gpu.empty(); }
};

/// Most ranks of a plan: it takes seconds, with times some tens of seconds.
inline constexpr int max_ranks = 1 << 16, max_played_ranks = 1 << 13;

/// dp × sp × tp, times cp where it is a number. Throws InputError above max_ranks.
int fewest_ranks(const job::Job::Parallel& parallel);

/// Missing prompts are left out, and the report says so. Shows progress on stderr where a sweep takes
/// long. Throws InputError for errors in the job file, config.json, the prompts, the cluster file or
/// the requests.
simulation::PlanReport plan_job(const PlanQuestion& question);

/// The cluster alone, fitted to runs.
simulation::ClusterReport plan_calibration(const PlanQuestion& question);

}  // namespace pecia::app
