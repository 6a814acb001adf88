// SPDX-License-Identifier: Apache-2.0
#include "lib/work/resources/layer_refusals.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::resources {
namespace {

/// Throws Unsupported where latent attention lacks what the job asks for.
void refuse_with_latents(const job::Job& job, const model::ModelConfig& config) {
  if (config.latent && job.attention.sparse == job::Sparse::csa)
    fail<Unsupported>(
        "attention.sparse: csa, whose levels send keys and values of heads, with the latent "
        "attention of {} is not in this version; leave attention.sparse out",
        name_of(config.family));
}

/// Throws Unsupported where layers that have heads of their own lack what the job asks for.
void refuse_with_own_heads(const job::Job& job, const model::ModelConfig& config) {
  if ((config.full_heads || config.sharing_layers > 0) && job.attention.sparse == job::Sparse::csa)
    fail<Unsupported>(
        "attention.sparse: csa, whose levels need layers with the same heads, with {} is not in "
        "this version; leave attention.sparse out",
        name_of(config.family));
}

/// Throws InputError where the job names shares for layers or heads that the model has not.
void check_drops(const job::Job& job, const model::ModelConfig& config) {
  if (job.attention.sparse != job::Sparse::csa || !job.attention.drop) return;
  const parallel::LayerDrops& drops = job.attention.drop->layers;
  if (drops.empty()) return;
  const int64_t layers = config.num_layers(model::MixerKind::attention);
  if (std::ssize(drops) != layers)
    fail<InputError>(
        "attention.drop: {{layers: …}} has {} shares, and {} has {} layers of attention",
        drops.size(), name_of(config.family), layers);
  for (size_t layer = 0; layer < drops.size(); ++layer) {
    const std::vector<double>& shares = drops[layer];
    if (shares.size() > 1 && std::ssize(shares) != config.num_kv_heads)
      fail<InputError>(
          "attention.drop: {{layers: …}} has {} shares for layer {}, which has {} KV heads; give "
          "one for each, or one for all",
          shares.size(), layer, config.num_kv_heads);
    if (shares.size() > 1 && job.attention.geometry == parallel::Geometry::nested)
      fail<Unsupported>(
          "attention.drop: {{layers: …}} with shares by head and geometry: nested is not in this "
          "version: nested levels keep the same tokens as keys and as queries; give one share for "
          "each layer, or use geometry: disjoint");
    const bool outer = layer == 0 || layer + 1 == drops.size();
    if (outer && std::ranges::any_of(shares, [](double share) { return share > 0; }))
      fail<InputError>(
          "attention.drop: {{layers: …}} drops tokens in layer {}, and the first and the last "
          "layer "
          "drop none: give 0 there",
          layer);
  }
}

/// Throws Unsupported where layers are all recurrent.
void refuse_without_attention(const model::ModelConfig& config) {
  if (config.recurrent && config.num_layers(model::MixerKind::attention) == 0)
    fail<Unsupported>(
        "a model without any layer of attention with the recurrent layers of {} is not in this "
        "version; take one that has some",
        name_of(config.family));
}

}  // namespace

void refuse_with_layers(const job::Job& job, const model::ModelConfig& config) {
  refuse_with_latents(job, config);
  refuse_with_own_heads(job, config);
  check_drops(job, config);
  refuse_without_attention(config);
}

}  // namespace pecia::resources
