// SPDX-License-Identifier: Apache-2.0
#include "lib/model/config/config_own_layers.hpp"

#include <algorithm>

namespace pecia::model {
namespace {

constexpr int64_t max_second_width = 1 << 16;

/// By layer, as transformers writes it from 5.23 on, or by global_head_dim and
/// num_global_key_value_heads, as files before that have it.
std::vector<KvHeads> read_heads(const JsonSection& file, const FamilyTraits& traits,
                                const ModelConfig& config) {
  std::vector<KvHeads> heads(config.layers, {config.num_kv_heads, config.head_dim});
  if (const auto each = file.section("per_layer_config")) {
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const auto own = each->section(std::to_string(layer));
      if (!own) continue;
      for (const auto& [key, value] : own->object().items())
        if (key != "head_dim" && key != "num_key_value_heads")
          own->refuse<Unsupported>(key,
                                   "and layers differ in head_dim and num_key_value_heads only");
      heads[layer].dim = own->integer("head_dim", 1, max_head_dim).value_or(config.head_dim);
      heads[layer].count =
          own->integer("num_key_value_heads", 1, config.num_heads).value_or(config.num_kv_heads);
    }
    return heads;
  }
  const int64_t dim =
      file.integer("global_head_dim", 1, max_head_dim).value_or(traits.full_head_dim);
  const auto count = file.integer("num_global_key_value_heads", 1, config.num_heads);
  const bool has_count = count && config.keys_give_values;  // else the key is not respected
  for (int64_t layer = 0; layer < config.layers; ++layer)
    if (config.pattern[layer].window == 0)
      heads[layer] = {has_count ? *count : config.num_kv_heads, dim};
  return heads;
}

void read_full_heads(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config) {
  const std::vector<KvHeads> heads = read_heads(file, traits, config);
  const KvHeads usual{config.num_kv_heads, config.head_dim};
  std::optional<KvHeads> full;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const bool has_window = config.pattern[layer].window > 0;
    if (heads[layer] != (has_window ? usual : full.value_or(heads[layer])))
      file.refuse<Unsupported>(
          "per_layer_config",
          fmt::format("and layer {} has other heads than the layers of its kind", layer));
    if (!has_window) full = heads[layer];
    if (heads[layer].dim % 2 != 0 || config.num_heads % heads[layer].count != 0)
      fail<InputError>(
          "{}: layer {} has {} KV heads of {} dimensions for {} query heads, but the first must "
          "divide the last, and the dimensions be even; correct one of them",
          file.file(), layer, heads[layer].count, heads[layer].dim, config.num_heads);
  }
  if (full && *full != usual) config.full_heads = full;
}

/// The last layers that attend the keys of others.
void read_sharing(const JsonSection& file, ModelConfig& config) {
  constexpr auto key = "num_kv_shared_layers";
  config.sharing_layers = file.integer(key, 0, config.layers).value_or(0);
  config.sharing_ffn = config.ffn * (file.flag("use_double_wide_mlp").value_or(false) ? 2 : 1);
  const auto own = config.pattern.begin() + (config.layers - config.sharing_layers);
  for (auto layer = own; layer != config.pattern.end(); ++layer)
    if (std::find_if(config.pattern.begin(), own,
                     [&](const LayerConfig& one) { return one.window == layer->window; }) == own)
      file.refuse(key, fmt::format("but no layer before these keeps keys for layer {}; correct it "
                                   "or layer_types",
                                   layer - config.pattern.begin()));
}

void read_second(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config) {
  config.second.width =
      file.integer("hidden_size_per_layer_input", 0, max_second_width)
          .value_or(file.names("hidden_size_per_layer_input") ? 0 : traits.second_width);
  constexpr auto key = "vocab_size_per_layer_input";
  const auto vocab = file.integer(key, 1, INT32_MAX);
  if (config.second.width > 0 && vocab.value_or(traits.vocab) != config.vocab)
    fail<Unsupported>(
        "{}: {} is {} and vocab_size {}, and second embeddings of another vocabulary are not "
        "implemented; use a model with one vocabulary",
        file.file(), key, vocab.value_or(traits.vocab), config.vocab);
}

}  // namespace

void read_own_layers(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config) {
  config.norms_values = traits.norms_values;
  config.scales_layers = traits.scales_layers;
  if (traits.full_head_dim == 0) return;
  config.keys_give_values = file.flag("attention_k_eq_v").value_or(false);
  read_full_heads(file, traits, config);
  read_sharing(file, config);
  read_second(file, traits, config);
}

}  // namespace pecia::model
