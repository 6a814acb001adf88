// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What `pecia plan` knows about a job without its weights, as a value and as text for people. With
/// a described cluster it also foresees times.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

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

/// Missing prompts are left out, and "prompts" says so. Throws InputError for errors in the job
/// file, config.json, the prompts, the cluster file or the requests.
nlohmann::ordered_json plan_job(const PlanQuestion& question);
std::string plan_text(const nlohmann::ordered_json& plan);

/// The cluster alone, fitted to runs, as {"schema", "cluster", "calibration"}.
nlohmann::ordered_json plan_calibration(const PlanQuestion& question);
std::string calibration_plan_text(const nlohmann::ordered_json& plan);

}  // namespace pecia::app
