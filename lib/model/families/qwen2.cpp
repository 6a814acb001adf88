// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits qwen2() {
  FamilyTraits traits = mistral();
  traits.family = Family::qwen2;
  traits.model_type = "qwen2";
  traits.architectures = {"Qwen2ForCausalLM"};
  traits.examples = "Qwen2, Qwen2.5";
  traits.beyond = "biases on q, k, v; windows in upper layers";
  traits.eos_token_ids = {};
  traits.bias_default = true;
  traits.windows = WindowRule::by_layer;
  return traits;
}

}  // namespace pecia::model::families
