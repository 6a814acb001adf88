// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits gpt_oss() {
  FamilyTraits traits = llama();
  traits.family = Family::gpt_oss;
  traits.model_type = "gpt_oss";
  traits.architectures = {"GptOssForCausalLM"};
  traits.examples = "gpt-oss-20b, gpt-oss-120b";
  traits.beyond =
      "attention sinks; windows in every other layer; a mixture of experts, in MXFP4 or bf16";
  traits.head_dim = 64;
  traits.rms_norm_eps = 1e-5;
  traits.eos_token_ids = {};
  traits.rope_theta = 150000;
  traits.vocab = 201088;
  traits.num_heads = 64;
  traits.num_kv_heads = 8;
  traits.max_positions = 131072;
  traits.bias_default = true;
  traits.mlp_bias_configurable = false;
  traits.activation = kernels::Activation::clamped;
  traits.windows = WindowRule::by_type;
  traits.window_default = 128;
  traits.full_period = 2;
  traits.has_experts = true;
  traits.num_experts = 128;
  traits.experts_per_token = 4;
  traits.routing = kernels::Routing::of_chosen;
  traits.packed_experts = traits.gate_up_rows_alternate = true;
  traits.expert_bias = true;
  traits.attention_sinks = true;
  traits.always_scaled = true;
  traits.names.sinks = "self_attn.sinks";
  traits.names.router = "mlp.router";
  traits.names.experts_gate_up = "mlp.experts.gate_up_proj";
  traits.names.experts_down = "mlp.experts.down_proj";
  return traits;
}

}  // namespace pecia::model::families
