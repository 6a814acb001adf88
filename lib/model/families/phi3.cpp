// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits phi3() {
  FamilyTraits traits = llama();
  traits.family = Family::phi3;
  traits.model_type = "phi3";
  traits.architectures = {"Phi3ForCausalLM"};
  traits.examples = "Phi-3, Phi-3.5, Phi-4, Phi-4-mini";
  traits.beyond = "packed `qkv_proj` and `gate_up_proj`, longrope, parts of heads rotated";
  traits.rms_norm_eps = 1e-5;
  traits.eos_token_ids = {32000};
  traits.bias_key = "";
  traits.bias_on_output = false;
  traits.mlp_bias_configurable = false;
  traits.partial_rotation = true;
  traits.windows = WindowRule::every_layer;
  traits.original_length = 4096;
  traits.qkv_rows = QkvRows::q_k_v;
  traits.names.q = traits.names.k = traits.names.v = "";
  traits.names.qkv = "self_attn.qkv_proj";
  traits.names.gate = traits.names.up = "";
  traits.names.gate_up = "mlp.gate_up_proj";
  return traits;
}

}  // namespace pecia::model::families
