// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits granite() {
  FamilyTraits traits = llama();
  traits.family = Family::granite;
  traits.model_type = "granite";
  traits.architectures = {"GraniteForCausalLM"};
  traits.examples = "Granite 3.0 to 3.3 (dense)";
  traits.beyond = "multipliers of embeddings, scores, residuals and logits";
  traits.multipliers = true;
  return traits;
}

}  // namespace pecia::model::families
