// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits glm4_moe() {
  FamilyTraits traits = llama();
  traits.family = Family::glm4_moe;
  traits.model_type = "glm4_moe";
  traits.architectures = {"Glm4MoeForCausalLM"};
  traits.examples = "GLM-4.5, GLM-4.5-Air, GLM-4.6, GLM-4.7";
  traits.beyond =
      "a mixture of experts chosen by sigmoids and a bias, a shared expert, dense first layers; "
      "half "
      "of each head rotated";
  traits.rms_norm_eps = 1e-5;
  traits.partial_rotary_factor = 0.5;
  traits.eos_token_ids = {};
  traits.bias_on_output = false;
  traits.mlp_bias_configurable = false;
  traits.qk_norm = QkNorm::each_head;
  traits.qk_norm_key = "use_qk_norm";
  traits.partial_rotation = true;
  traits.has_experts = true;
  traits.num_experts = 128;
  traits.experts_per_token = 8;
  traits.expert_count_key = "n_routed_experts";
  traits.expert_ffn_key = "moe_intermediate_size";
  traits.shared_count_key = "n_shared_experts";
  traits.shared_count = 1;
  traits.first_dense_key = "first_k_dense_replace";
  traits.routing = kernels::Routing::sigmoid;
  traits.routing_configurable = true;
  traits.route_scale_key = "routed_scaling_factor";
  traits.expert_groups = true;
  traits.draft_layers_key = "num_nextn_predict_layers";
  traits.known_values = {{"scoring_func", R"("sigmoid")"}, {"topk_method", R"("noaux_tc")"}};
  traits.names.q_norm = "self_attn.q_norm";
  traits.names.k_norm = "self_attn.k_norm";
  traits.names.router = "mlp.gate";
  traits.names.choice_bias = "mlp.gate.e_score_correction_bias";
  traits.names.expert_gate = "mlp.experts.{}.gate_proj";
  traits.names.expert_up = "mlp.experts.{}.up_proj";
  traits.names.expert_down = "mlp.experts.{}.down_proj";
  traits.names.shared_gate = "mlp.shared_experts.gate_proj";
  traits.names.shared_up = "mlp.shared_experts.up_proj";
  traits.names.shared_down = "mlp.shared_experts.down_proj";
  return traits;
}

}  // namespace pecia::model::families
