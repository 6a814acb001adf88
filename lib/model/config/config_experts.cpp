// SPDX-License-Identifier: Apache-2.0
#include "lib/model/config/config_experts.hpp"

#include <algorithm>

namespace pecia::model {
namespace {

constexpr int64_t max_experts = 1 << 16;

/// transformers 5 calls num_experts num_local_experts.
int64_t read_count(const JsonSection& file, const FamilyTraits& traits) {
  if (!traits.expert_count_key.empty())
    return file.integer(traits.expert_count_key, 1, max_experts).value_or(traits.num_experts);
  const auto count = file.integer("num_experts", 1, max_experts);
  const auto local = file.integer("num_local_experts", 1, max_experts);
  if (count && local && *count != *local)
    file.refuse("num_experts",
                fmt::format("but num_local_experts is {}; remove one of them", *local));
  return count.value_or(local.value_or(traits.num_experts));
}

kernels::Routing read_routing(const JsonSection& file, const FamilyTraits& traits) {
  if (!traits.routing_configurable || traits.routing == kernels::Routing::sigmoid)
    return traits.routing;
  const bool by_default = traits.routing == kernels::Routing::of_chosen;
  return file.flag("norm_topk_prob").value_or(by_default) ? kernels::Routing::of_chosen
                                                          : kernels::Routing::of_all;
}

/// Needs the count of experts and how many a token takes.
kernels::SigmoidRouting read_sigmoid(const JsonSection& file, const FamilyTraits& traits,
                                     const ExpertsConfig& experts) {
  kernels::SigmoidRouting sigmoid = traits.sigmoid;
  if (traits.routing_configurable) sigmoid.normed = file.flag("norm_topk_prob").value_or(true);
  if (!traits.route_scale_key.empty())
    sigmoid.scale = static_cast<float>(
        file.number(traits.route_scale_key, 1e-6, 1e6).value_or(traits.route_scale));
  if (!traits.expert_groups) return sigmoid;
  const auto groups_at = [&](std::string_view key, int by_default) {
    return static_cast<int>(file.integer(key, 1, kernels::most_expert_groups).value_or(by_default));
  };
  sigmoid.groups = groups_at("n_group", traits.num_groups);
  sigmoid.kept_groups = groups_at("topk_group", traits.kept_groups);
  if (sigmoid.groups == 1) sigmoid.kept_groups = 1;
  if (experts.count % sigmoid.groups != 0 || experts.count / sigmoid.groups < 2)
    file.refuse("n_group",
                fmt::format("but a layer has {} experts, which are no such groups of two "
                            "or more; correct one of them",
                            experts.count));
  const int64_t to_choose_from = experts.count / sigmoid.groups * sigmoid.kept_groups;
  if (sigmoid.kept_groups > sigmoid.groups || experts.per_token > to_choose_from)
    file.refuse("topk_group",
                fmt::format("of {} groups of {} experts, but a token takes {} experts; "
                            "correct one of them",
                            sigmoid.groups, experts.count / sigmoid.groups, experts.per_token));
  return sigmoid;
}

/// By a list of the layers' kinds; without it the first layer is dense.
std::vector<bool> read_dense_list(const JsonSection& file, const FamilyTraits& traits,
                                  int64_t layers) {
  std::vector<bool> dense(layers);
  const std::string_view key = traits.dense_list_key;
  const auto kinds = file.texts(key);
  if (!kinds) {
    dense.front() = true;
    return dense;
  }
  if (std::ssize(*kinds) != layers)
    file.refuse(key, fmt::format("with {} entries, but num_hidden_layers is {}; correct one of "
                                 "them",
                                 kinds->size(), layers));
  for (int64_t layer = 0; layer < layers; ++layer) {
    dense[layer] = (*kinds)[layer] == "dense";
    if (!dense[layer] && (*kinds)[layer] != "sparse")
      file.refuse<Unsupported>(key, fmt::format("and {} (layer {}) is not implemented; known are "
                                                "dense and sparse",
                                                (*kinds)[layer], layer));
  }
  return dense;
}

/// All but those that the file lists, or but each so-and-so-many-th.
std::vector<bool> read_interleaved(const JsonSection& file, int64_t layers) {
  std::vector<bool> dense(layers, true);
  const int64_t step = file.integer("interleave_moe_layer_step", 1, max_model_layers).value_or(1);
  if (const auto listed = file.integers("moe_layers", 0, layers - 1))
    for (const int64_t layer : *listed) dense[layer] = false;
  else
    for (int64_t layer = step - 1; layer < layers; layer += step) dense[layer] = false;
  return dense;
}

/// Which layers are dense.
std::vector<bool> read_dense(const JsonSection& file, const FamilyTraits& traits, int64_t layers) {
  std::vector<bool> dense(layers);
  if (!traits.first_dense_key.empty())
    std::fill_n(
        dense.begin(),
        std::min(
            layers,
            file.integer(traits.first_dense_key, 0, max_model_layers).value_or(traits.first_dense)),
        true);
  if (!traits.dense_list_key.empty()) return read_dense_list(file, traits, layers);
  if (traits.interleaves_experts) return read_interleaved(file, layers);
  if (!traits.mixes_dense_layers) return dense;
  const int64_t step = file.integer("decoder_sparse_step", 1, max_model_layers).value_or(1);
  for (int64_t layer = 0; layer < layers; ++layer) dense[layer] = (layer + 1) % step != 0;
  if (const auto listed = file.integers("mlp_only_layers", 0, layers - 1))
    for (const int64_t layer : *listed) dense[layer] = true;
  return dense;
}

}  // namespace

void read_experts(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config) {
  if (!traits.has_experts) return;
  if (!traits.experts_flag.empty() && !file.flag(traits.experts_flag).value_or(false)) return;
  const bool are_listed = traits.recurrent && traits.recurrent->one_block;
  const auto has_some = [&] {
    return std::ranges::count(config.pattern, FeedForward::experts, &LayerConfig::feed_forward) > 0;
  };
  if (are_listed && !has_some()) return;
  if (traits.experts_optional && file.integer(traits.expert_count_key, 0, max_experts) == 0) return;
  const std::string_view taken =
      traits.per_token_key.empty() ? "num_experts_per_tok" : traits.per_token_key;
  ExpertsConfig experts;
  experts.count = read_count(file, traits);
  experts.per_token = file.integer(taken, 1, max_experts).value_or(traits.experts_per_token);
  if (experts.count == 0) file.missing("num_experts");
  if (experts.per_token == 0) file.missing(taken);
  if (experts.per_token > experts.count)
    file.refuse(taken,
                fmt::format("so a token takes {} of the {} experts of a layer; correct one of them",
                            experts.per_token, experts.count));
  experts.ffn = traits.expert_ffn_key.empty()
                    ? config.ffn
                    : file.required_integer(traits.expert_ffn_key, 1, max_ffn_columns);
  experts.routing = read_routing(file, traits);
  if (experts.routing == kernels::Routing::sigmoid)
    experts.sigmoid = read_sigmoid(file, traits, experts);
  experts.choice_bias = !traits.names.choice_bias.empty();
  if (traits.weighs_expert_inputs) experts.weighed = kernels::Weighed::inputs;
  if (traits.has_shared_expert) experts.shared_ffn = experts.ffn;
  if (!traits.shared_count_key.empty())
    experts.shared_ffn =
        experts.ffn *
        file.integer(traits.shared_count_key, 0, max_experts).value_or(traits.shared_count);
  if (!traits.shared_ffn_key.empty())
    experts.shared_ffn =
        file.integer(traits.shared_ffn_key, 0, max_ffn_columns).value_or(traits.shared_ffn);
  if (traits.expert_latents)
    experts.latent = file.integer("moe_latent_size", 1, max_ffn_columns).value_or(0);
  experts.shared_gate = experts.shared_ffn > 0 && !traits.names.shared_row_gate.empty();
  if (experts.shared_ffn > max_ffn_columns)
    file.refuse(traits.shared_count_key,
                fmt::format("so shared experts have {} columns, and the most are {}",
                            experts.shared_ffn, max_ffn_columns));
  config.experts = experts;
  config.dense_beside_experts = traits.dense_beside_experts;
  if (are_listed) return;
  const std::vector<bool> dense = read_dense(file, traits, config.layers);
  for (int64_t layer = 0; layer < config.layers; ++layer)
    config.pattern[layer].feed_forward = dense[layer] ? FeedForward::dense : FeedForward::experts;
}

}  // namespace pecia::model
