// SPDX-License-Identifier: Apache-2.0
/// What follows from a configuration: layers of a kind, parameters, bytes and FLOPs.

#include <algorithm>
#include <numeric>

#include "lib/base/core/fp8_vector.hpp"
#include "lib/model/config/config.hpp"

namespace pecia::model {
namespace {

/// Number of elements in the matrices of a layer's attention with latents.
int64_t latent_elements(const ModelConfig& config) {
  const LatentConfig& latent = *config.latent;
  const int64_t query_width = config.num_heads * latent.query_dim();
  const int64_t queries = latent.q_rank > 0 ? latent.q_rank * (config.hidden + query_width)
                                            : config.hidden * query_width;
  const int64_t up = config.num_heads * (latent.nope_dim + latent.value_dim) * latent.kv_rank;
  return queries + config.hidden * latent.key_dim() + up +
         config.num_heads * latent.value_dim * config.hidden;
}

/// The same of heads that have queries, keys and values.
int64_t head_elements(const ModelConfig& config, int64_t layer) {
  const auto [count, dim] = config.heads(layer);
  const int64_t of_queries = config.attention_gate ? 3 : 2;
  const int64_t of_keys = config.has_keys(layer) + config.has_values(layer);
  return config.hidden * dim * (of_queries * config.num_heads + of_keys * count);
}

/// The same of a recurrence. The convolution is not among its matrices.
int64_t recurrent_elements(const ModelConfig& config) {
  const RecurrentConfig& recurrent = config.recurrent.value();
  const int64_t of_heads = (recurrent.corrects ? 2 : 1) * recurrent.heads;  // a, and b
  return config.hidden * (2 * recurrent.keys() + 3 * recurrent.values() + of_heads);
}

int64_t mixer_elements_of(const ModelConfig& config, int64_t layer) {
  switch (config.mixer(layer)) {
    case MixerKind::attention:
      return config.latent ? latent_elements(config) : head_elements(config, layer);
    case MixerKind::recurrence:
      return recurrent_elements(config);
    case MixerKind::none:
      break;
  }
  return 0;
}

/// Number of elements in the matrices that follow a layer's mixer, with `experts` experts where it has
/// some.
int64_t feed_forward_elements(const ModelConfig& config, int64_t layer, int64_t experts) {
  const int64_t matrices = config.matrices_of_ffn();
  int64_t columns = 2 * config.second.width;
  if (config.has_dense_ffn(layer)) columns += matrices * config.ffn_of(layer);
  if (!config.dense_beside_experts && config.feed_forward(layer) != FeedForward::experts)
    return config.hidden * columns;
  const ExpertsConfig& mixture = config.experts.value();
  columns += mixture.count + matrices * mixture.shared_ffn + (mixture.shared_gate ? 1 : 0) +
             2 * mixture.latent;
  const int64_t width = mixture.latent > 0 ? mixture.latent : config.hidden;
  return config.hidden * columns + width * matrices * experts * mixture.ffn;
}

/// The same of all layers, with their mixers.
int64_t matrix_elements(const ModelConfig& config, int64_t experts) {
  int64_t elements = 0;
  for (int64_t layer = 0; layer < config.layers; ++layer)
    elements += mixer_elements_of(config, layer) + feed_forward_elements(config, layer, experts);
  return elements;
}

/// What second embeddings have beside the layers: the table is read by row, the projection whole.
int64_t second_projection(const ModelConfig& config) {
  return config.layers * config.second.width * config.hidden;
}

/// Biases of routers and of `experts` experts.
int64_t expert_bias_elements(const ModelConfig& config, int64_t experts) {
  if (!config.experts) return 0;
  int64_t elements = config.experts->choice_bias ? config.experts->count : 0;
  if (config.expert_bias)
    elements += config.experts->count + experts * (2 * config.experts->ffn + config.hidden);
  return config.num_layers(FeedForward::experts) * elements;
}

/// The same with the experts that a token takes.
int64_t active_elements(const ModelConfig& config) {
  return matrix_elements(config, config.experts ? config.experts->per_token : 0);
}

/// Biases, norms and other vectors of a layer's mixer.
int64_t mixer_vectors(const ModelConfig& config, int64_t layer) {
  if (config.mixer(layer) == MixerKind::none) return 0;
  if (config.mixer(layer) == MixerKind::recurrence) return config.recurrent->vectors();
  const auto [kv_heads, dim] = config.heads(layer);
  const int64_t query_width = config.num_heads * dim, kv_width = kv_heads * dim;
  int64_t elements = 0;
  if (config.latent)
    elements += config.latent->q_rank + config.latent->kv_rank +  // norms
                (config.attention_bias ? config.latent->q_rank + config.latent->key_dim() : 0);
  else if (config.attention_bias)
    elements += query_width + 2 * kv_width;
  if (config.attention_output_bias) elements += config.hidden;
  if (config.attention_sinks) elements += config.num_heads;
  if (config.qk_norm == QkNorm::each_head) elements += (config.has_keys(layer) ? 2 : 1) * dim;
  if (config.qk_norm == QkNorm::all_heads) elements += query_width + kv_width;
  return elements;
}

/// What a rank caches of a token in layers that `counts` names.
template <typename Counts>
int64_t cached_bytes(const ModelConfig& config, DType dtype, int64_t ranks, const Counts& counts) {
  int64_t bytes = 0;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (!config.has_keys(layer) || !counts(layer)) continue;
    const auto [heads, dim] = config.heads(layer);
    bytes +=
        (config.latent ? 1 : 2) * std::max<int64_t>(1, heads / ranks) * vector_bytes(dtype, dim);
  }
  return bytes;
}

}  // namespace

std::vector<kernels::Window> ModelConfig::windows() const {
  std::vector<kernels::Window> windows;
  for (const LayerConfig& layer : pattern) windows.push_back(layer.window);
  return windows;
}

kernels::Window ModelConfig::widest_window() const {
  kernels::Window widest;
  for (const LayerConfig& layer : pattern) widest = std::max(widest, layer.window);
  return widest;
}

int64_t ModelConfig::layers_with_window() const {
  return std::ranges::count_if(
      pattern, [](const LayerConfig& layer) { return static_cast<bool>(layer.window); });
}

std::vector<int64_t> ModelConfig::kv_heads_of_layers() const {
  std::vector<int64_t> counts;
  if (full_heads)
    for (int64_t layer = 0; layer < layers; ++layer) counts.push_back(heads(layer).count);
  return counts;
}

int64_t ModelConfig::num_layers(MixerKind mixer) const {
  if (!recurrent) return mixer == MixerKind::attention ? layers : 0;
  return std::ranges::count(pattern, mixer, &LayerConfig::mixer);
}

int64_t ModelConfig::keys_of(int64_t layer) const {
  if (mixer(layer) != MixerKind::attention) return -1;
  if (has_keys(layer)) return layer;
  int64_t from = layers - sharing_layers - 1;
  while (from > 0 && pattern[from].window != pattern[layer].window) --from;
  return from;
}

int64_t ModelConfig::last_mixing_layer() const {
  int64_t layer = layers - 1;
  while (layer > 0 && mixer(layer) == MixerKind::none) --layer;
  return layer;
}

int64_t ModelConfig::common_heads() const {
  return std::gcd(num_heads, recurrent ? recurrent->heads : 0);
}

double ModelConfig::prompt_flops_per_pair() const {
  if (!latent) return attention_flops_per_pair();
  return 2.0 * static_cast<double>(num_heads * (query_dim() + output_dim()) *
                                   num_layers(MixerKind::attention));
}

double ModelConfig::attention_flops_per_pair() const {
  if (!full_heads)
    return 2.0 * static_cast<double>(num_heads * (head_dim + value_dim()) *
                                     num_layers(MixerKind::attention));
  int64_t numbers = 0;
  for (int64_t layer = 0; layer < layers; ++layer) numbers += 2 * heads(layer).dim;
  return 2.0 * static_cast<double>(num_heads * numbers);
}

int64_t ModelConfig::num_layers(FeedForward feed_forward) const {
  if (!experts && !recurrent) return feed_forward == FeedForward::dense ? layers : 0;
  if (dense_beside_experts) return layers;
  return std::ranges::count(pattern, feed_forward, &LayerConfig::feed_forward);
}

int64_t ModelConfig::common_ffn() const {
  if (!experts) return ffn;
  return std::gcd(ffn_of_all_tokens(), num_layers(FeedForward::experts) > 0 ? experts->ffn : 0);
}

int64_t ModelConfig::ffn_of_all_tokens() const {
  return std::gcd(num_layers(FeedForward::dense) > 0 ? ffn : 0,
                  num_layers(FeedForward::experts) > 0 ? experts->shared_ffn : 0);
}

int64_t ModelConfig::parameters() const {
  int64_t all_layers = 0;  // biases and norms
  for (int64_t layer = 0; layer < layers; ++layer) {
    const int64_t blocks = (mixer(layer) != MixerKind::none ? 1 : 0) +
                           (feed_forward(layer) != FeedForward::none ? 1 : 0);
    if (norm_before) all_layers += blocks * hidden;
    if (norm_after) all_layers += blocks * hidden;
    all_layers += mixer_vectors(*this, layer);
    if (mlp_bias) all_layers += 2 * ffn + hidden;
    if (xielu) all_layers += 2;  // its curvatures
    if (second.width > 0) all_layers += hidden;
    if (scales_layers) all_layers += 1;
    if (dense_beside_experts) all_layers += 4 * hidden + experts->count;
  }
  if (second.width > 0) all_layers += second_projection(*this) + second.width;
  const int64_t all = experts ? experts->count : 0;
  const int64_t of_ends = stage.ends() ? hidden : 0;  // the final norm
  const bool is_one = tied_embeddings && stage.embeds() && stage.ends();
  const int64_t of_vocab = is_one ? 1 : (stage.embeds() ? 1 : 0) + (stage.ends() ? 1 : 0);
  return matrix_elements(*this, all) + expert_bias_elements(*this, all) + all_layers + of_ends +
         vocab * layers * second.width + of_vocab * vocab * hidden;
}

int64_t ModelConfig::active_parameters() const {
  const int64_t all = experts ? experts->count : 0, taken = experts ? experts->per_token : 0;
  return parameters() - matrix_elements(*this, all) - expert_bias_elements(*this, all) +
         active_elements(*this) + expert_bias_elements(*this, taken);
}

double ModelConfig::flops_per_token() const {
  return 2.0 * static_cast<double>(active_elements(*this) + second_projection(*this)) +
         (stage.ends() ? flops_of_head() : 0);
}

double ModelConfig::flops_of_layer(int64_t layer) const {
  const int64_t elements = mixer_elements_of(*this, layer) +
                           feed_forward_elements(*this, layer, experts ? experts->per_token : 0);
  const bool recurs = mixer(layer) == MixerKind::recurrence;
  return 2.0 * static_cast<double>(elements) +
         (recurs ? recurrence_flops_per_token() /
                       static_cast<double>(num_layers(MixerKind::recurrence))
                 : 0);
}

double ModelConfig::flops_of_head() const {
  return 2.0 * static_cast<double>(vocab) * static_cast<double>(hidden);
}

int64_t ModelConfig::kv_bytes_per_token(DType dtype, int64_t ranks) const {
  return cached_bytes(*this, dtype, ranks, [](int64_t) { return true; });
}

int64_t ModelConfig::state_bytes(int64_t ranks) const {
  if (!recurrent) return 0;
  const int64_t heads = recurrent->heads / ranks;
  const int64_t key_heads = std::max<int64_t>(1, recurrent->key_heads / ranks);
  const int64_t keys = key_heads * recurrent->key_dim, values = heads * recurrent->value_dim;
  const int64_t numbers =
      values * recurrent->key_dim + (recurrent->conv_rows - 1) * (2 * keys + values);
  return num_layers(MixerKind::recurrence) * numbers * size_of(DType::fp32);
}

double ModelConfig::recurrence_flops_per_token() const {
  if (!recurrent) return 0;
  // Of each number of a head's matrix: it decays, takes the row in and is read; a delta net reads it
  // before that, too.
  const int64_t of_each = recurrent->corrects ? 7 : 5;
  const int64_t of_layer = of_each * recurrent->values() * recurrent->key_dim +
                           2 * recurrent->conv_rows * recurrent->channels();
  return static_cast<double>(num_layers(MixerKind::recurrence) * of_layer);
}

double ModelConfig::flops_after_mixers() const {
  int64_t layer = last_mixing_layer();
  const int64_t mixed = mixer(layer) == MixerKind::recurrence ? recurrent->values()
                        : latent                              ? num_heads * latent->value_dim
                                                              : num_heads * heads(layer).dim;
  int64_t elements = hidden * mixed;
  for (; layer < layers; ++layer)
    elements += feed_forward_elements(*this, layer, experts ? experts->per_token : 0);
  return 2.0 * static_cast<double>(elements);
}

int64_t ModelConfig::window_bytes_per_token(DType dtype, int64_t ranks) const {
  if (pattern.empty()) return 0;
  return cached_bytes(*this, dtype, ranks,
                      [this](int64_t layer) { return pattern[layer].window > 0; });
}

}  // namespace pecia::model
