// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/papers/machine.hpp"

#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/model/config/presets.hpp"

namespace pecia::simulation::papers {

Machine::Machine(const std::string& model, cluster_files::Cluster cluster, job::Job job)
    : job_(std::move(job)),
      config_(model::config_of_preset_or_folder(model)),
      cluster_(std::move(cluster)),
      costs_({.job = job_,
              .config = config_,
              .cluster = cluster_,
              .weights = DType::bf16,
              .kv = DType::bf16,
              .traits = traits_of(cluster_, job_)}) {
  config_.max_positions = std::max<int64_t>(config_.max_positions, int64_t{1} << 21);
}

job::Job::Parallel Machine::parallel_of(const Grid& grid, int replicas) const {
  job::Job::Parallel parallel;
  parallel.dp = replicas;
  parallel.cp.degree = grid.cp;
  parallel.sp = grid.sp, parallel.tp = grid.tp;
  parallel.prefill = grid.prefill, parallel.decode = grid.decode;
  return parallel;
}

RequestLatency Machine::latency(const Grid& grid, const RequestShape& shape,
                                std::optional<int64_t> tokens_per_pass) {
  Batches batches(alike(1, shape.cached_tokens + shape.prompt_tokens, shape.new_tokens), config_);
  resources::Resources resources =
      layout_resources(costs_.scenario(), parallel_of(grid, 1), grid.ranks(), batches);
  if (tokens_per_pass) resources.max_batch_tokens = *tokens_per_pass;
  return request_latency(costs_, resources, shape);
}

BatchEnd Machine::batch(const Grid& grid, int replicas,
                        std::vector<schedule::SimulatedRequest> requests) {
  Batches batches(std::move(requests), config_);
  const LayoutForecast found =
      forecast(costs_, batches, parallel_of(grid, replicas), replicas * grid.ranks());
  PECIA_CHECK(found.end, "a paper's batch does not fit: {}", found.memory.why_not.value_or("?"));
  return *found.end;
}

std::vector<schedule::SimulatedRequest> alike(int64_t count, int64_t prompt, int64_t answer) {
  schedule::SimulatedRequest request;
  request.turns = {{prompt, answer}};
  return std::vector<schedule::SimulatedRequest>(count, request);
}

}  // namespace pecia::simulation::papers
