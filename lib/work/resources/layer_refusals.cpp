// SPDX-License-Identifier: Apache-2.0
#include "lib/work/resources/layer_refusals.hpp"

#include <string_view>

#include "lib/base/core/error.hpp"
#include "lib/work/resources/resources.hpp"

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

/// Throws Unsupported where recurrent layers lack what the job asks for.
void refuse_with_recurrence(const job::Job& job, const model::ModelConfig& config) {
  if (!config.recurrent) return;
  const auto refuse = [&](std::string_view what, std::string_view instead) {
    fail<Unsupported>("{} with the recurrent layers of {} is not in this version; {}", what,
                      name_of(config.family), instead);
  };
  if (config.num_layers(model::MixerKind::attention) == 0)
    refuse("a model without any layer of attention", "take one that has some");
  if (!drafts_with_states(job, true)) return;
  const auto refuse_drafts = [&](std::string_view with) {
    refuse(fmt::format("generation.drafts and {}", with), "use drafts: off");
  };
  if (job.parallel.cp.elastic) refuse_drafts("parallel.cp: elastic");
  if (job.parallel.phases == job::Phases::apart) refuse_drafts("parallel.phases: apart");
  if (job.attention.sparse == job::Sparse::csa) refuse_drafts("attention.sparse: csa");
}

}  // namespace

void refuse_with_layers(const job::Job& job, const model::ModelConfig& config) {
  refuse_with_latents(job, config);
  refuse_with_own_heads(job, config);
  refuse_with_recurrence(job, config);
}

}  // namespace pecia::resources
