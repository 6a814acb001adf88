// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

void add_latent_names(WeightNames& names) {
  names.q_down = "self_attn.q_a_proj";
  names.q_norm = "self_attn.q_a_layernorm";
  names.q_up = "self_attn.q_b_proj";
  names.kv_down = "self_attn.kv_a_proj_with_mqa";
  names.k_norm = "self_attn.kv_a_layernorm";
  names.kv_up = "self_attn.kv_b_proj";
  names.k = names.v = "";
}

FamilyTraits deepseek_v3() {
  FamilyTraits traits = llama();
  traits.family = Family::deepseek_v3;
  traits.model_type = "deepseek_v3";
  traits.other_types = {"kimi_k2"};
  traits.architectures = {"DeepseekV3ForCausalLM"};
  traits.examples = "DeepSeek-V3, DeepSeek-R1, Kimi K2 (`kimi_k2`); in bf16";
  traits.beyond =
      "latent attention; yarn; a mixture of experts as in `glm4_moe`, chosen within groups";
  traits.rms_norm_eps = 1e-6;
  traits.eos_token_ids = {};
  traits.mlp_bias_configurable = false;
  traits.is_latent = true;
  traits.latent = {1536, 512, 128, 64, 128};
  add_sigmoid_experts(traits);
  traits.num_experts = 256;
  traits.experts_per_token = 8;
  traits.first_dense = 3;
  traits.route_scale = 2.5;
  traits.num_groups = 8;
  traits.kept_groups = 4;
  add_latent_names(traits.names);
  return traits;
}

}  // namespace pecia::model::families
