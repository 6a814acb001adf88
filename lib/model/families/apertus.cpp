// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits apertus() {
  FamilyTraits traits = llama();
  traits.family = Family::apertus;
  traits.model_type = "apertus";
  traits.architectures = {"ApertusForCausalLM"};
  traits.examples = "Apertus 8B, Apertus 70B";
  traits.beyond = "xIELU in place of a gate, norms of each head's q and k";
  traits.rms_norm_eps = 1e-5;
  traits.rope_theta = 12e6;
  traits.vocab = 131072;
  traits.num_heads = 32;
  traits.max_positions = 65536;
  traits.mlp_bias_configurable = false;
  traits.always_scaled = true;
  traits.qk_norm = QkNorm::each_head;
  traits.names.attention_norm = "attention_layernorm";
  traits.names.ffn_norm = "feedforward_layernorm";
  traits.names.q_norm = "self_attn.q_norm";
  traits.names.k_norm = "self_attn.k_norm";
  traits.names.gate = "";
  traits.names.xielu = "mlp.act_fn";
  return traits;
}

}  // namespace pecia::model::families
