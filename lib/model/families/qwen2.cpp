// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits qwen2() {
  FamilyTraits traits = mistral();
  traits.family = Family::qwen2;
  traits.model_type = "qwen2";
  traits.architectures = {"Qwen2ForCausalLM"};
  traits.eos_token_ids = {};
  traits.bias_default = true;
  traits.windows = WindowRule::by_layer;
  return traits;
}

}  // namespace pecia::model::families
