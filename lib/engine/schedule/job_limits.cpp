// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/job_limits.hpp"

#include "lib/base/core/fp8_vector.hpp"
#include "lib/model/config/stage.hpp"

namespace pecia::schedule {

parallel::RingShape ring_shape(const model::ModelConfig& config,
                               const resources::Resources& resources) {
  const auto on_wire = static_cast<double>(size_of(resources.wire.value_or(DType::fp32)));
  // A pair takes 2 · (key + value) FLOPs a head, which the rules call 4 · D. So bytes count per
  // element of D, the mean of the two: keys that hold the values travel once.
  // Where layers differ, the ring is chosen for those that see all keys.
  const model::KvHeads heads = config.widest_heads();
  const auto key = static_cast<double>(heads.dim);
  const double value = config.latent ? static_cast<double>(config.value_dim()) : key;
  const double mean = (key + value) / 2;
  const double stored = config.values_in_keys() > 0 ? key / (2 * mean) : 1;
  return {static_cast<double>(config.num_heads), static_cast<double>(heads.count),
          stored * element_bytes(resources.kv_dtype, heads.dim), on_wire * key / mean,
          on_wire * value / mean};
}

double query_bytes_per_row(const model::ModelConfig& config,
                           const resources::Resources& resources) {
  const auto on_wire = static_cast<double>(size_of(resources.wire.value_or(DType::fp32)));
  const double elements = config.attention_flops_per_pair() / 2;  // of queries and results
  const auto log_sums = static_cast<double>(config.layers * config.num_heads);
  return (on_wire * elements + sizeof(float) * log_sums) / (resources.sp * resources.tp);
}

bool on_demand(const job::Job& job) {
  return job.kv.admission.value_or(job::KvAdmission::demand) == job::KvAdmission::demand;
}

namespace {

/// Tokens whose keys and values take as much memory of a rank as a state; 0: there are no states.
int64_t state_tokens(const model::ModelConfig& config, const resources::Resources& resources) {
  if (!config.recurrent) return 0;
  resources::Resources one = resources;
  one.states = 1;
  const int64_t state = resources::state_memory_of_rank(config, one);
  const int64_t token = resources::kv_bytes_of_rank(config, resources);
  return (state + token - 1) / token;
}

std::vector<double> stage_work(const model::ModelConfig& config, int stages) {
  std::vector<double> work;
  if (stages == 1) return work;
  for (const parallel::RowRange& layers : model::layers_of_stages(config, stages)) {
    double& of_stage = work.emplace_back(0);
    for (int64_t layer = layers.begin; layer < layers.end; ++layer)
      of_stage += config.flops_of_layer(layer);
  }
  return work;
}

}  // namespace

SchedulerLimits limits_of(const job::Job& job, const model::ModelConfig& config,
                          const resources::Resources& resources) {
  return {.ring_size = resources.cp,
          .stages = resources.pp,
          .row_work = config.flops_per_token(),
          .pair_work = config.prompt_flops_per_pair(),
          .stage_work = stage_work(config, resources.pp),
          .head_work = config.flops_of_head(),
          .elastic = resources.elastic,
          .objective = resources.objective,
          .tbt_s = job.batch.objective.tbt_s,
          .scheduler = resources.scheduler,
          .min_instances = resources.min_instances,
          .max_instances = resources.max_instances,
          .answering = resources.answering,
          .fixed_parts = resources.fixed_parts,
          .kv_tokens = resources.kv_tokens,
          .on_demand = on_demand(job),
          .max_sequences = resources.max_sequences,
          .max_batch_tokens = resources.max_batch_tokens,
          .max_positions = config.max_positions,
          .stop_token_ids = job.generation.stop_token_ids.value_or(config.stop_token_ids),
          .eos_token_ids = config.stop_token_ids,
          .logprobs = job.generation.logprobs,
          .prompt_logprobs = job.generation.prompt_logprobs,
          .vocab = config.vocab,
          .vector_scale = config.logits_divisor,  // by which the final norm is divided
          .normalizes_vectors = job.vector.normalize,
          .vector_type = job.vector.dtype,
          .modes = parallel::pass_modes({resources.degrees(), resources.prefill, resources.decode},
                                        resources.shift_threshold, resources.gather_threshold),
          .policy = job.batch.policy,
          .ring = resources.ring,
          .ring_shape = ring_shape(config, resources),
          .levels_from = resources.levels_from(),
          .layout_invariant = job.reproducible == parallel::Reproducible::layout,
          .has_states = config.recurrent.has_value(),
          .state_tokens = state_tokens(config, resources)};
}

}  // namespace pecia::schedule
