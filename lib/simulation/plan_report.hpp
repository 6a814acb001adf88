// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What `pecia plan` knows about a job without its weights, as values; `to_json` has the keys of its
/// --json. With a described cluster it also has the layouts that a sweep compared.

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/engine/execute/rank_needs.hpp"
#include "lib/simulation/calibration.hpp"
#include "lib/simulation/request_latency.hpp"
#include "lib/simulation/sweep.hpp"
#include "lib/work/resources/footprint.hpp"

namespace pecia::simulation {

/// How a run on a number of ranks resolves a job's degrees and modes.
struct GridOutcome {
  resources::Resources resources;  ///< as far as they were decided
  std::string refused;             ///< why the run would not start; "": it would
};
/// `gpus`: every rank computes on a GPU.
GridOutcome grid_outcome(const job::Job& job, const model::ModelConfig& config, int ranks,
                         bool gpus);
nlohmann::ordered_json to_json(const GridOutcome& outcome);

/// What a rank of the run would need, without a cluster.
struct RankPlan {
  int ranks = 1;
  GridOutcome grid;
  std::optional<execute::RankNeeds> needs;  ///< of a replica's first rank; absent: refused
};

struct ClusterReport {
  std::string name;
  cluster_files::Cluster cluster;
  std::string assumed = {};                     ///< what no file says of it; "": a file says all
  std::optional<Calibration> calibration = {};  ///< the runs that it was fitted to
};
/// A plan of a cluster alone.
nlohmann::ordered_json to_json(const ClusterReport& report);

/// The batch that is asked about, before requests are joined.
struct BatchReport {
  int64_t requests = 0, prompt_tokens = 0, new_tokens = 0, longest_prompt = 0;
  /// Fewest and most of a request.
  std::pair<int64_t, int64_t> prompt_of_a_request, new_of_a_request;
};
BatchReport batch_report(const Batch& batch);

/// A layout that a sweep compared, with what only a plan tells of it.
struct PlannedLayout : LayoutForecast {
  int servers = 1;
  int64_t kv_bytes_per_token = 0;                                      ///< of a rank
  std::vector<std::pair<RequestShape, RequestLatency>> requests = {};  ///< each alone
  std::string why_not_shared = {};            ///< of requests that begin alike; "": they are joined
  std::optional<std::string> would_fit = {};  ///< the least change, where it does not fit

  bool fits() const { return end.has_value(); }
  bool by_one_rank() const { return fidelity == Fidelity::one_rank; }
};

struct SweepReport {
  BatchReport batch;
  std::vector<PlannedLayout> plans = {};  ///< the best first
  /// The largest number of ranks up to which twice the ranks cost at most a quarter more GPU-hours
  /// each time; absent where one number was asked about.
  std::optional<int> knee = {};
  LayoutCounts counts;
};

/// Sweeps. `shapes`: the requests of which single times are told, at least one.
SweepReport sweep_report(PassCosts& costs, Batches& batches, const SweepQuestion& question,
                         const std::vector<RequestShape>& shapes);

struct PlanReport {
  job::Job job;
  model::ModelConfig config;
  bool gpus = false;
  const char* backend_by = "this machine";  ///< or "job" or "cluster": who says which backend
  std::string prompts_missing = {};  ///< why there are no prompts; "": none are named, or all
  std::optional<resources::PromptFootprint> prompts = {};
  resources::WeightFootprint weights = {};
  resources::KvFootprint kv = {};
  std::optional<RankPlan> rank = {};          ///< present without a cluster
  std::optional<ClusterReport> cluster = {};  ///< present with `sweep`
  std::optional<SweepReport> sweep = {};

  /// limits.over_length in the words of job files.
  std::string over_length() const;
};
nlohmann::ordered_json to_json(const PlanReport& report);

/// The most tokens of an answer that a pass drafts; absent: generation.drafts is off.
std::optional<int64_t> most_drafted(const job::Job& job);
/// Shares of drafted tokens that may be right, of which plans tell what a step then has.
constexpr std::array<double, 3> drafts_accepted = {0.3, 0.6, 0.9};
/// Expected tokens of an answer from a step with this number of drafted tokens, each of which is right
/// with probability `accepted` where those before it were.
double tokens_of_a_step(int64_t drafted, double accepted);

}  // namespace pecia::simulation
