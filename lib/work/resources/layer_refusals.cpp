// SPDX-License-Identifier: Apache-2.0
#include "lib/work/resources/layer_refusals.hpp"

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
  refuse_without_attention(config);
}

}  // namespace pecia::resources
