// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits smollm3() {
  FamilyTraits traits = llama();
  traits.family = Family::smollm3;
  traits.model_type = "smollm3";
  traits.architectures = {"SmolLM3ForCausalLM"};
  traits.examples = "SmolLM3";
  traits.beyond = "layers without rotation";
  traits.eos_token_ids = {128001};
  traits.rope_theta = 2e6;
  traits.tied_embeddings = true;
  traits.num_kv_heads = 4;
  traits.windows = WindowRule::by_list;
  traits.unrotated_period = 4;
  return traits;
}

}  // namespace pecia::model::families
