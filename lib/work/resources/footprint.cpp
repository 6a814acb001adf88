// SPDX-License-Identifier: Apache-2.0
#include "lib/work/resources/footprint.hpp"

#include <algorithm>
#include <limits>

#include "lib/base/core/codes.hpp"

namespace pecia::resources {

DType float_type(const job::Job& job, const model::ModelConfig& config) {
  if (job.model.dtype && quantize_of(job) == model::Quantize::nothing)
    return dtype_of(*job.model.dtype);
  return config.stored_dtype.value_or(DType::fp32);
}

WeightFootprint weight_footprint(const job::Job& job, const model::ModelConfig& config, bool gpus) {
  const model::Quantize quantize = quantize_of(job);
  const DType plain = float_type(job, config);
  WeightFootprint found{"", false, config.parameters() * size_of(plain)};
  found.assumed =
      !config.stored_dtype && (!job.model.dtype || quantize != model::Quantize::nothing);
  const int cut_ranks = job.parallel.sp.value_or(1) * job.parallel.tp.value_or(1);
  const model::CodeUse codes = code_use(job, config, cut_ranks, job.parallel.ep.value_or(1), gpus);
  std::vector<DType> of_experts;
  for (size_t i = 0; i < model::num_matrix_kinds; ++i) {
    const auto kind = static_cast<model::MatrixKind>(i);
    if (num_matrices(config, kind) == 0 || kind == model::MatrixKind::head) continue;
    const DType type = resident_type(config, kind, plain, quantize, codes);
    const model::MatrixRole& role = model::role_of(kind);
    if (role.unit == model::CutUnit::expert_ffn) of_experts.push_back(type);
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const int64_t count = num_matrices(config, kind, layer);
      if (count == 0) continue;
      const int64_t columns = role.in(config, layer);
      found.bytes += count * role.out(config, layer) *
                     (resident_row_bytes(config, type, columns) - row_bytes(plain, columns));
    }
  }
  const int64_t wider = size_of(DType::fp32) - size_of(plain);  // Residence makes fp32 of these
  if (config.experts && config.experts->choice_bias)
    found.bytes += config.num_layers(model::FeedForward::experts) * config.experts->count * wider;
  if (config.recurrent)
    found.bytes +=
        config.num_layers(model::MixerKind::recurrence) * config.recurrent->vectors() * wider;
  if (config.dense_beside_experts)
    found.bytes += config.layers * (config.hidden + config.experts->count) * wider;
  const model::MatrixRole& head_keys = model::role_of(model::MatrixKind::head_keys);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const int64_t of_ones = config.heads(layer).dim * size_of(DType::fp32);  // in no checkpoint
    if (config.norms_values && config.has_keys(layer)) found.bytes += of_ones;
    if (config.norms_without_weights(layer)) found.bytes += of_ones;
    if (config.scales_layers) found.bytes -= size_of(plain);  // kept as a number
    if (config.latent)  // the keys' part of kv_b is there as it is, and transposed
      found.bytes += head_keys.out(config, layer) * head_keys.in(config, layer) * size_of(plain);
  }
  const DType of_layers = resident_type(config, model::MatrixKind::q, plain, quantize, codes);
  found.types = quantize == model::Quantize::fp8_ffn
                    ? fmt::format("{} with feed-forward of fp8", name_of(plain))
                : quantize != model::Quantize::nothing
                    ? std::string(name_of(dtype_of(*job.model.dtype)))
                    : model::types_text(of_layers, of_experts);
  if (const auto head = type_of_matrix(quantize, model::MatrixKind::head)) {
    // beside a tied embedding, which stays
    found.bytes += config.vocab * row_bytes(*head, config.hidden);
    if (!config.tied_embeddings) found.bytes -= config.vocab * row_bytes(plain, config.hidden);
  }
  return found;
}

PromptFootprint prompt_footprint(const job::Job& job, const model::ModelConfig& config,
                                 const batch::Inputs& inputs) {
  PromptFootprint found;
  found.requests = static_cast<int64_t>(inputs.requests().size());
  found.turns = inputs.num_turns();
  for (const batch::InputRequest& request : inputs.requests()) {
    const io::PromptRequest& prompt = inputs.prompt(request);
    for (size_t turn = 0; turn < prompt.turns.size(); ++turn) {
      const int64_t tokens = prompt.turns[turn].num_tokens();
      const int64_t wanted = inputs.max_new_tokens(request, turn);
      found.tokens += tokens;
      found.new_tokens += inputs.answer_tokens(request, turn);
      if (tokens > found.longest_tokens) {
        found.longest_tokens = tokens;
        found.longest_id = prompt.id;
      }
      const bool fails = job.limits.over_length == job::OverLength::fail;
      const int64_t cut = tokens - inputs.kept_tokens(request, turn);
      const int64_t room =
          config.max_positions - (wanted > 0 ? 1 : 0) - inputs.longest_continuation(request, turn);
      found.over_length += fails ? tokens > room : cut > 0;
      found.truncated_tokens += cut;
    }
  }
  return found;
}

KvFootprint kv_footprint(const job::Job& job, const model::ModelConfig& config,
                         const batch::Inputs* inputs, Resources resources) {
  resources.kv_dtype = job.kv.dtype ? dtype_of(*job.kv.dtype) : float_type(job, config);
  resources.max_batch_tokens = resolve_batch_tokens(
      job, config, parallel::row_ranks(resources.degrees(), resources.prefill), resources.gpus);
  resources.max_sequences = resolve_max_sequences(job, config, inputs, resources);
  KvFootprint found;
  found.dtype = resources.kv_dtype;
  found.bytes_per_token = config.kv_bytes_per_token(resources.kv_dtype);
  found.bytes_per_token_of_rank = kv_bytes_of_rank(config, resources);
  found.max_sequences = resources.max_sequences;
  if (inputs == nullptr) return found;
  job::Job unlimited = job;
  unlimited.kv.memory.reset();
  resolve_kv_slots(unlimited, config, inputs, resources, std::numeric_limits<int64_t>::max())
      .write_to(resources);
  found.tokens_of_rank = resources.kv_tokens;
  found.recent_tokens_of_rank = resources.kv_recent_tokens;
  found.bytes_of_rank = kv_memory_of_rank(config, resources);
  return found;
}

}  // namespace pecia::resources
