// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits gemma3() {
  FamilyTraits traits = llama();
  traits.family = Family::gemma3;
  traits.model_type = "gemma3_text";
  traits.outer_type = "gemma3";
  traits.architectures = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"};
  traits.examples = "Gemma 3 (text)";
  traits.beyond = "windows with a rotation of their own, norms around blocks, GeGLU";
  traits.head_dim = 256;
  traits.eos_token_ids = {1};
  traits.rope_theta = 1e6;
  traits.tied_embeddings = true;
  traits.vocab = 262208;
  traits.num_heads = 8;
  traits.num_kv_heads = 4;
  traits.max_positions = 131072;
  traits.mlp_bias_configurable = false;
  traits.qk_norm = QkNorm::each_head;
  traits.norm_weight_offset = 1;
  traits.activation = kernels::Activation::gelu_tanh;
  traits.windows = WindowRule::by_type;
  traits.window_default = 4096;
  traits.full_period = 6;
  traits.period_key = "sliding_window_pattern";
  traits.local_rope = true;
  traits.local_theta_key = "rope_local_base_freq";
  traits.local_theta = 1e4;
  traits.length_is_scaled = true;
  traits.query_scalar = true;
  traits.scales_embeddings = true;
  traits.names.ffn_norm = "pre_feedforward_layernorm";
  traits.names.post_attention_norm = "post_attention_layernorm";
  traits.names.post_ffn_norm = "post_feedforward_layernorm";
  traits.names.q_norm = "self_attn.q_norm";
  traits.names.k_norm = "self_attn.k_norm";
  return traits;
}

}  // namespace pecia::model::families
