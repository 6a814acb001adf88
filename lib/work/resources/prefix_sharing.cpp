// SPDX-License-Identifier: Apache-2.0
#include "lib/work/resources/prefix_sharing.hpp"

#include <nlohmann/json.hpp>

namespace pecia::resources {
namespace {

/// Where results must not depend on the batch, prompts are always cut at the same tokens, and so a
/// beginning ends at one of these cuts.
int64_t block_of(const job::Job& job, const model::ModelConfig& config,
                 const Resources& resources) {
  if (job.reproducible != parallel::Reproducible::layout) return batch::PrefixRules{}.block;
  return resolve_batch_tokens(
      job, config, parallel::row_ranks(resources.degrees(), resources.prefill), resources.gpus);
}

}  // namespace

std::string why_not_shared(const job::Job& job, const model::ModelConfig& config,
                           const Resources& resources) {
  if (!job.batch.prefix_sharing) return "batch.prefix_sharing is false";
  if (job.batch.arrivals == job::Arrivals::replay) return "arrivals are replayed";
  if (job.generation.prompt_logprobs != 0)
    return "generation.prompt_logprobs has every prompt computed";
  if (resources.sparse) return "attention.sparse keeps other tokens of a prompt that is cut";
  if (config.rope.scaling == model::RopeScaling::dynamic)
    return "dynamic RoPE scaling rotates a prompt's tokens by its length";
  return "";
}

batch::PrefixRules prefix_rules(const job::Job& job, const model::ModelConfig& config,
                                const Resources& resources) {
  return {.block = block_of(job, config, resources),
          .parts = resources.dp * (resources.elastic ? resources.cp : 1)};
}

nlohmann::ordered_json json_of(const batch::Sharing& sharing, const std::string& why_not) {
  if (!why_not.empty()) return {{"none", why_not}};
  return {{"prefixes", sharing.prefixes},
          {"prefix_tokens", sharing.prefix_tokens},
          {"requests", sharing.requests},
          {"shared_tokens", sharing.shared_tokens},
          {"repeated_tokens", sharing.repeated_tokens},
          {"spared_tokens", sharing.spared_tokens()}};
}

}  // namespace pecia::resources
