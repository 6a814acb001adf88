// SPDX-License-Identifier: Apache-2.0
#include "lib/run/scheduler_limits.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/core/fp8_vector.hpp"

namespace pecia::run {

schedule::TeamCosts team_costs(const model::ModelConfig& config,
                               const resources::Resources& resources,
                               const parallel::RingRates& rates) {
  constexpr double message_s = 30e-6;  // until passes of teams have been measured
  const double shards = static_cast<double>(resources.sp) * resources.tp;
  // A query in fp32, and its partial output with the log-sum of each head.
  const double query_bytes = 4.0 * static_cast<double>(config.layers * config.num_heads) *
                             static_cast<double>(2 * config.head_dim + 1) / shards;
  return {.message_s = message_s,
          .bytes_per_second = rates.bandwidth,
          .kv_bytes_per_token = static_cast<double>(resources::kv_bytes_of_rank(config, resources)),
          .query_bytes_per_row = query_bytes,
          .layers = static_cast<int>(config.layers),
          .hides_keys = resources.gpus};
}

parallel::RingShape ring_shape(const model::ModelConfig& config,
                               const resources::Resources& resources) {
  return {static_cast<double>(config.num_heads), static_cast<double>(config.num_kv_heads),
          element_bytes(resources.kv_dtype, config.head_dim)};
}

schedule::SchedulerLimits scheduler_limits(const Setup& setup, const measure::Measured& measured,
                                           std::optional<schedule::TimeLimit> time,
                                           std::shared_ptr<const io::Detokenizer> detokenizer) {
  const job::Job& job = setup.job;
  const model::ModelConfig& config = setup.config;
  const resources::Resources& resources = setup.resources;
  std::optional<schedule::TeamTimes> team_times;
  if (resources.elastic && time)
    team_times.emplace(time->times, team_costs(config, resources, measured.ring), resources.cp);
  return {.ring_size = resources.cp,
          .elastic = resources.elastic,
          .objective = resources.objective,
          .min_instances = resources.min_instances,
          .max_instances = resources.max_instances,
          .kv_tokens = resources.kv_tokens,
          .max_sequences = resources.max_sequences,
          .max_batch_tokens = resources.max_batch_tokens,
          .max_positions = config.max_positions,
          .stop_token_ids = job.generation.stop_token_ids.value_or(config.stop_token_ids),
          .eos_token_ids = config.stop_token_ids,
          .detokenizer = std::move(detokenizer),
          .logprobs = job.generation.logprobs,
          .prompt_logprobs = job.generation.prompt_logprobs,
          .vocab = config.vocab,
          .modes = parallel::pass_modes({resources.degrees(), resources.prefill, resources.decode},
                                        measured.shift_threshold),
          .policy = job.batch.policy,
          .ring = resources.ring,
          .ring_shape = ring_shape(config, resources),
          .ring_rates = measured.ring,
          .levels_from = resources.levels_from(),
          .layout_invariant = job.reproducible == parallel::Reproducible::layout,
          .time = std::move(time),
          .team_times = std::move(team_times)};
}

}  // namespace pecia::run
