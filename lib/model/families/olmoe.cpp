// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits olmoe() {
  FamilyTraits traits = llama();
  traits.family = Family::olmoe;
  traits.model_type = "olmoe";
  traits.architectures = {"OlmoeForCausalLM"};
  traits.examples = "OLMoE-1B-7B";
  traits.beyond = "a mixture of experts; norms of q and k over all heads";
  traits.rms_norm_eps = 1e-5;
  traits.eos_token_ids = {50279};
  traits.mlp_bias_configurable = false;
  traits.qk_norm = QkNorm::all_heads;
  traits.names.q_norm = "self_attn.q_norm";
  traits.names.k_norm = "self_attn.k_norm";
  traits.has_experts = true;
  traits.num_experts = 64;
  traits.experts_per_token = 8;
  traits.routing_configurable = true;
  traits.names.router = "mlp.gate";
  traits.names.expert_gate = "mlp.experts.{}.gate_proj";
  traits.names.expert_up = "mlp.experts.{}.up_proj";
  traits.names.expert_down = "mlp.experts.{}.down_proj";
  return traits;
}

}  // namespace pecia::model::families
