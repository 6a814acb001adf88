// SPDX-License-Identifier: Apache-2.0
#include "lib/run/scheduler_limits.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/core/fp8_vector.hpp"

namespace pecia::run {

schedule::SchedulerLimits scheduler_limits(const Setup& setup, const measure::Measured& measured,
                                           schedule::TimeLimit time,
                                           std::shared_ptr<const io::Detokenizer> detokenizer) {
  const job::Job& job = setup.job;
  const model::ModelConfig& config = setup.config;
  const resources::Resources& resources = setup.resources;
  std::vector<int32_t> stops = job.generation.stop_token_ids.value_or(config.stop_token_ids);
  if (job.generation.ignore_eos)
    std::erase_if(stops, [&](int32_t token) {
      return std::count(config.stop_token_ids.begin(), config.stop_token_ids.end(), token) > 0;
    });
  return {.ring_size = resources.cp,
          .kv_tokens = resources.kv_tokens,
          .max_sequences = resources.max_sequences,
          .max_batch_tokens = resources.max_batch_tokens,
          .max_positions = config.max_positions,
          .stop_token_ids = stops,
          .detokenizer = std::move(detokenizer),
          .logprobs = job.generation.logprobs,
          .prompt_logprobs = job.generation.prompt_logprobs,
          .vocab = config.vocab,
          .modes = parallel::pass_modes({resources.degrees(), resources.prefill, resources.decode},
                                        measured.shift_threshold),
          .policy = job.batch.policy,
          .ring = resources.ring,
          .ring_shape = {static_cast<double>(config.num_heads),
                         static_cast<double>(config.num_kv_heads),
                         element_bytes(resources.kv_dtype, config.head_dim)},
          .ring_rates = measured.ring,
          .layout_invariant = job.reproducible == parallel::Reproducible::layout,
          .time = std::move(time)};
}

}  // namespace pecia::run
