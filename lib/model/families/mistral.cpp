// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits mistral() {
  FamilyTraits traits = llama();
  traits.family = Family::mistral;
  traits.model_type = "mistral";
  traits.outer_type = "mistral3";
  traits.architectures = {"MistralForCausalLM", "Mistral3ForConditionalGeneration"};
  traits.examples = "Mistral 7B, Mistral Nemo, Mistral Small 3 to 3.2 (text)";
  traits.beyond = "sliding window";
  traits.bias_key = "";
  traits.bias_on_output = false;
  traits.mlp_bias_configurable = false;
  traits.windows = WindowRule::every_layer;
  traits.window_default = 4096;
  return traits;
}

}  // namespace pecia::model::families
