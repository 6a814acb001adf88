// SPDX-License-Identifier: Apache-2.0
#include "lib/model/config/config_experts.hpp"

namespace pecia::model {
namespace {

constexpr int64_t max_experts = 1 << 16;

/// transformers 5 calls num_experts num_local_experts.
int64_t read_count(const JsonSection& file, const FamilyTraits& traits) {
  const auto count = file.integer("num_experts", 1, max_experts);
  const auto local = file.integer("num_local_experts", 1, max_experts);
  if (count && local && *count != *local)
    file.refuse("num_experts",
                fmt::format("but num_local_experts is {}; remove one of them", *local));
  return count.value_or(local.value_or(traits.num_experts));
}

kernels::Routing read_routing(const JsonSection& file, const FamilyTraits& traits) {
  if (!traits.routing_configurable) return traits.routing;
  const bool by_default = traits.routing == kernels::Routing::of_chosen;
  return file.flag("norm_topk_prob").value_or(by_default) ? kernels::Routing::of_chosen
                                                          : kernels::Routing::of_all;
}

}  // namespace

void read_experts(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config) {
  if (!traits.has_experts) return;
  ExpertsConfig experts;
  experts.count = read_count(file, traits);
  experts.per_token =
      file.integer("num_experts_per_tok", 1, max_experts).value_or(traits.experts_per_token);
  if (experts.per_token > experts.count)
    file.refuse("num_experts_per_tok",
                fmt::format("so a token takes {} of the {} experts of a layer; correct one of them",
                            experts.per_token, experts.count));
  experts.ffn = traits.expert_ffn_key.empty()
                    ? config.ffn
                    : file.required_integer(traits.expert_ffn_key, 1, max_ffn_columns);
  experts.routing = read_routing(file, traits);
  config.experts = experts;

  std::vector<bool> dense(config.layers);
  if (traits.mixes_dense_layers) {
    const int64_t step = file.integer("decoder_sparse_step", 1, max_model_layers).value_or(1);
    for (int64_t layer = 0; layer < config.layers; ++layer) dense[layer] = (layer + 1) % step != 0;
    if (const auto listed = file.integers("mlp_only_layers", 0, config.layers - 1))
      for (const int64_t layer : *listed) dense[layer] = true;
  }
  for (int64_t layer = 0; layer < config.layers; ++layer)
    config.pattern[layer].feed_forward = dense[layer] ? FeedForward::dense : FeedForward::experts;
}

}  // namespace pecia::model
