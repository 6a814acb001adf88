// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits afmoe() {
  FamilyTraits traits = llama();
  traits.family = Family::afmoe;
  traits.model_type = "afmoe";
  traits.architectures = {"AfmoeForCausalLM"};
  traits.examples = "Trinity Mini, Trinity Nano";
  traits.beyond =
      "windows and rotation in three of four layers, gates of attention, norms around blocks; a "
      "mixture of experts as in `glm4_moe`";
  traits.head_dim = 128;
  traits.rms_norm_eps = 1e-5;
  traits.eos_token_ids = {};
  traits.mlp_bias_configurable = false;
  traits.qk_norm = QkNorm::each_head;
  traits.windows = WindowRule::by_type;
  traits.window_default = 1024;
  traits.full_period = 4;
  traits.period_key = "global_attn_every_n_layers";
  traits.rotates_windows_only = true;
  traits.scales_embeddings = true;
  traits.scales_key = "mup_enabled";
  add_sigmoid_experts(traits);
  traits.num_experts = 64;
  traits.experts_per_token = 6;
  traits.expert_count_key = "";
  traits.shared_count_key = "num_shared_experts";
  traits.shared_count = 2;
  traits.first_dense_key = "num_dense_layers";
  traits.routing_configurable = false;
  traits.route_scale_key = "route_scale";
  traits.expert_groups = false;
  traits.draft_layers_key = "";
  traits.known_values = {{"score_func", R"("sigmoid")"},
                         {"route_norm", "true"},
                         {"n_group", "1"},
                         {"topk_group", "1"}};
  traits.names.ffn_norm = "pre_mlp_layernorm";
  traits.names.post_attention_norm = "post_attention_layernorm";
  traits.names.post_ffn_norm = "post_mlp_layernorm";
  traits.names.q_norm = "self_attn.q_norm";
  traits.names.k_norm = "self_attn.k_norm";
  traits.names.attention_gate = "self_attn.gate_proj";
  traits.names.router = "mlp.router.gate";
  traits.names.choice_bias = "mlp.expert_bias";
  return traits;
}

}  // namespace pecia::model::families
