// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A model on a described cluster: what the papers' figures are asked of.

#include <optional>
#include <string>
#include <vector>

#include "lib/simulation/layout_forecast.hpp"
#include "lib/simulation/request_latency.hpp"

namespace pecia::simulation::papers {

/// Degrees of a grid that a paper measures; DP is what they leave of the ranks.
struct Grid {
  int cp = 1, sp = 1, tp = 1;
  std::optional<parallel::PrefillMode> prefill = {};
  std::optional<parallel::DecodeMode> decode = {};

  int ranks() const { return cp * sp * tp; }
};

class Machine {
 public:
  /// A preset of models on a cluster. `job`: types and limits; its grid does not count.
  Machine(const std::string& model, cluster_files::Cluster cluster, job::Job job = {});
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const model::ModelConfig& config() const { return config_; }
  const cluster_files::Cluster& cluster() const { return cluster_; }
  PassCosts& costs() { return costs_; }

  /// A request alone on one replica. `tokens_per_pass`: of its prompt; absent: as a run takes them.
  RequestLatency latency(const Grid& grid, const RequestShape& shape,
                         std::optional<int64_t> tokens_per_pass = {});
  /// A batch on replicas of this grid.
  BatchEnd batch(const Grid& grid, int replicas, std::vector<schedule::SimulatedRequest> requests);

 private:
  job::Job::Parallel parallel_of(const Grid& grid, int replicas) const;

  job::Job job_;
  model::ModelConfig config_;
  cluster_files::Cluster cluster_;
  PassCosts costs_;
};

/// Requests of one prompt and one answer, which are there from the start.
std::vector<schedule::SimulatedRequest> alike(int64_t count, int64_t prompt, int64_t answer);

}  // namespace pecia::simulation::papers
