// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits llama4_text() {
  FamilyTraits traits = llama();
  traits.family = Family::llama4_text;
  traits.model_type = "llama4_text";
  traits.outer_type = "llama4";
  traits.architectures = {"Llama4ForCausalLM", "Llama4ForConditionalGeneration"};
  traits.examples = "Llama 4 Scout, Llama 4 Maverick (text)";
  traits.beyond =
      "attention in chunks and rotation in three of four layers, in the fourth queries scaled by "
      "their position; a mixture of experts whose inputs are weighed, and a shared expert";
  traits.head_dim = 128;
  traits.rms_norm_eps = 1e-5;
  traits.rope_theta = 5e5;
  traits.vocab = 202048;
  traits.num_heads = 40;
  traits.num_kv_heads = 8;
  traits.max_positions = 131072;
  traits.mlp_bias_configurable = false;
  traits.pairs = kernels::RopePairs::interleaved;
  traits.windows = WindowRule::chunks;
  traits.window_default = 8192;
  traits.unrotated_period = 4;
  traits.unrotated_temperature = true;
  traits.qk_norm = QkNorm::rotated_heads;
  traits.qk_norm_key = "use_qk_norm";
  traits.qk_norm_default = true;
  traits.has_experts = true;
  traits.num_experts = 16;
  traits.experts_per_token = 1;
  traits.expert_ffn_key = "intermediate_size";
  traits.has_shared_expert = true;
  traits.dense_ffn_key = "intermediate_size_mlp";
  traits.dense_ffn = 16384;
  traits.interleaves_experts = true;
  traits.weighs_expert_inputs = true;
  traits.routing = kernels::Routing::sigmoid;
  traits.sigmoid = {.normed = false, .by_logits = true};
  traits.packed_experts = true;
  traits.names.gate = "feed_forward.gate_proj";
  traits.names.up = "feed_forward.up_proj";
  traits.names.down = "feed_forward.down_proj";
  traits.names.router = "feed_forward.router";
  traits.names.experts_gate_up = "feed_forward.experts.gate_up_proj";
  traits.names.experts_down = "feed_forward.experts.down_proj";
  traits.names.shared_gate = "feed_forward.shared_expert.gate_proj";
  traits.names.shared_up = "feed_forward.shared_expert.up_proj";
  traits.names.shared_down = "feed_forward.shared_expert.down_proj";
  return traits;
}

}  // namespace pecia::model::families
