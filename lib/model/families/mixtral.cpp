// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits mixtral() {
  FamilyTraits traits = mistral();
  traits.family = Family::mixtral;
  traits.model_type = "mixtral";
  traits.architectures = {"MixtralForCausalLM"};
  traits.examples = "Mixtral 8x7B, Mixtral 8x22B";
  traits.beyond = "a mixture of experts; sliding window";
  traits.rms_norm_eps = 1e-5;
  traits.rope_theta = 1e6;
  traits.num_kv_heads = 8;
  traits.window_default = 0;
  traits.has_experts = true;
  traits.num_experts = 8;
  traits.experts_per_token = 2;
  traits.routing = kernels::Routing::of_chosen;
  traits.names.router = "block_sparse_moe.gate";
  traits.names.expert_gate = "block_sparse_moe.experts.{}.w1";
  traits.names.expert_up = "block_sparse_moe.experts.{}.w3";
  traits.names.expert_down = "block_sparse_moe.experts.{}.w2";
  return traits;
}

}  // namespace pecia::model::families
