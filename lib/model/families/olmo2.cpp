// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits olmo2() {
  FamilyTraits traits = llama();
  traits.family = Family::olmo2;
  traits.model_type = "olmo2";
  traits.architectures = {"Olmo2ForCausalLM"};
  traits.examples = "OLMo 2";
  traits.beyond = "norms after blocks, norms of q and k over all heads";
  traits.rms_norm_eps = 1e-5;
  traits.eos_token_ids = {50279};
  traits.mlp_bias_configurable = false;
  traits.qk_norm = QkNorm::all_heads;
  traits.names.attention_norm = traits.names.ffn_norm = "";
  traits.names.post_attention_norm = "post_attention_layernorm";
  traits.names.post_ffn_norm = "post_feedforward_layernorm";
  traits.names.q_norm = "self_attn.q_norm";
  traits.names.k_norm = "self_attn.k_norm";
  return traits;
}

}  // namespace pecia::model::families
