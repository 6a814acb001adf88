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
  add_sigmoid_experts(traits);
  traits.num_experts = 128;
  traits.experts_per_token = 8;
  traits.names.q_norm = "self_attn.q_norm";
  traits.names.k_norm = "self_attn.k_norm";
  return traits;
}

}  // namespace pecia::model::families
