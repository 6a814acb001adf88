// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits ministral() {
  FamilyTraits traits = mistral();
  traits.family = Family::ministral;
  traits.model_type = "ministral";
  traits.outer_type = "";
  traits.architectures = {"MinistralForCausalLM"};
  traits.examples = "Ministral 8B 2410";
  traits.beyond = "windows in some layers or in all";
  traits.vocab = 32000;
  traits.num_heads = 32;
  traits.num_kv_heads = 8;
  traits.max_positions = 131072;
  traits.windows = WindowRule::by_list_or_every_layer;
  return traits;
}

}  // namespace pecia::model::families
