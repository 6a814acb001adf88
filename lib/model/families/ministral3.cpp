// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits ministral3() {
  FamilyTraits traits = mistral();
  traits.family = Family::ministral3;
  traits.model_type = "ministral3";
  traits.architectures = {"Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"};
  traits.examples = "Ministral 3 (3B, 8B, 14B; text)";
  traits.beyond = "yarn; queries scaled by their position";
  traits.head_dim = 128;
  traits.rms_norm_eps = 1e-5;
  traits.rope_theta = 1e6;
  traits.vocab = 131072;
  traits.num_heads = 32;
  traits.num_kv_heads = 8;
  traits.max_positions = 262144;
  traits.window_default = 0;
  traits.always_scaled = true;
  traits.query_temperature = true;
  return traits;
}

}  // namespace pecia::model::families
