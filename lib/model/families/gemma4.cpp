// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits gemma4() {
  FamilyTraits traits = gemma3();
  traits.family = Family::gemma4;
  traits.model_type = "gemma4_text";
  traits.outer_type = "gemma4";
  traits.architectures = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"};
  traits.examples = "Gemma 4 (text)";
  traits.beyond =
      "Gemma 3's windows and norms; heads of their own and keys as values in full layers, last "
      "layers that share keys, second embeddings; a mixture of experts beside the feed-forward";
  traits.partial_rotary_factor = 0.25;
  traits.partial_rotation = true;
  traits.proportional_rope = true;
  traits.vocab = 262144;
  traits.norm_weight_offset = 0;
  traits.norms_values = true;
  traits.window_default = 512;
  traits.period_key = "";
  traits.last_layer_is_full = true;
  traits.local_theta_key = "";
  traits.length_is_scaled = false;
  traits.query_scalar = false;
  traits.unit_scores = true;
  traits.caps_logits = true;
  traits.full_head_dim = 512;
  traits.second_width = 256;
  traits.scales_layers = true;
  traits.sees_images = true;
  traits.has_experts = true;
  traits.experts_flag = "enable_moe_block";
  traits.per_token_key = "top_k_experts";
  traits.expert_ffn_key = "moe_intermediate_size";
  traits.routing = kernels::Routing::of_chosen;  // probabilities that are normed are these
  traits.dense_beside_experts = true;
  traits.known_values = {{"use_bidirectional_attention", R"("vision")"}};
  WeightNames& names = traits.names;
  names.layer_scale = "layer_scalar";
  names.router = "router.proj";
  names.router_scale = "router.scale";
  names.expert_scales = "router.per_expert_scale";
  names.experts_gate_up = "experts.gate_up_proj";
  names.experts_down = "experts.down_proj";
  names.experts_norm = "pre_feedforward_layernorm_2";
  names.post_dense_norm = "post_feedforward_layernorm_1";
  names.post_experts_norm = "post_feedforward_layernorm_2";
  names.second_embedding = "model.embed_tokens_per_layer";
  names.second_projection = "model.per_layer_model_projection";
  names.second_projection_norm = "model.per_layer_projection_norm";
  names.second_gate = "per_layer_input_gate";
  names.second_up = "per_layer_projection";
  names.second_norm = "post_per_layer_input_norm";
  return traits;
}

}  // namespace pecia::model::families
