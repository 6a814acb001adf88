// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits olmo3() {
  FamilyTraits traits = olmo2();
  traits.family = Family::olmo3;
  traits.model_type = "olmo3";
  traits.architectures = {"Olmo3ForCausalLM"};
  traits.examples = "OLMo 3";
  traits.beyond = "OLMo 2's norms; windows in three of four layers, yarn in the fourth";
  traits.rope_theta = 5e5;
  traits.windows = WindowRule::by_type;
  traits.window_default = 4096;
  traits.full_period = 4;
  traits.local_rope = true;
  return traits;
}

}  // namespace pecia::model::families
