// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A job of a small model on a small machine, and batches for it.

#include <vector>

#include "lib/engine/schedule/simulate.hpp"
#include "lib/simulation/pass_cost.hpp"
#include "tests/simulation/small_cluster.hpp"
#include "tests/simulation/small_grid.hpp"

namespace pecia::simulation {

/// A job with what its passes refer to.
struct SmallJob {
  SmallJob() { job.batch.max_batch_tokens = 256; }

  Scenario scenario() const { return {job, config, cluster, DType::fp32, DType::fp32}; }

  job::Job job;
  model::ModelConfig config = small_model(6);
  cluster_files::Cluster cluster = small_cluster();
};

inline std::vector<schedule::SimulatedRequest> requests_of(const std::vector<int64_t>& prompts,
                                                           int64_t answers) {
  std::vector<schedule::SimulatedRequest> requests;
  for (const int64_t prompt : prompts) requests.push_back({.turns = {{prompt, answers}}});
  return requests;
}

}  // namespace pecia::simulation
