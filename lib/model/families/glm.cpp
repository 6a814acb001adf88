// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits glm() {
  FamilyTraits traits = llama();
  traits.family = Family::glm;
  traits.model_type = "glm";
  traits.architectures = {"GlmForCausalLM"};
  traits.examples = "GLM-4-9B in the transformers format (`glm-4-9b-chat-hf`)";
  traits.beyond = "half of each head rotated";
  traits.head_dim = 128;
  traits.rms_norm_eps = 1.5625e-07;
  traits.partial_rotary_factor = 0.5;
  traits.eos_token_ids = {151329, 151336, 151338};
  traits.bias_default = true;
  traits.bias_on_output = false;
  traits.mlp_bias_configurable = false;
  traits.pairs = kernels::RopePairs::interleaved;
  traits.partial_rotation = true;
  traits.names.gate = traits.names.up = "";
  traits.names.gate_up = "mlp.gate_up_proj";
  return traits;
}

}  // namespace pecia::model::families
