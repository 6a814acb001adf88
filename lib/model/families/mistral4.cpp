// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits mistral4() {
  FamilyTraits traits = deepseek_v3();
  traits.family = Family::mistral4;
  traits.model_type = "mistral4";
  traits.other_types = {};
  traits.architectures = {"Mistral4ForCausalLM", "Mistral3ForConditionalGeneration"};
  traits.examples = "Mistral Small 4 (text)";
  traits.beyond =
      "latent attention; yarn; queries scaled by their position; a mixture of experts and a shared "
      "expert";
  traits.latent = {1024, 256, 64, 64, 128};
  traits.always_scaled = true;
  traits.query_temperature = true;
  traits.num_experts = 128;
  traits.experts_per_token = 4;
  traits.first_dense = 0;
  traits.routing = kernels::Routing::of_chosen;  // probabilities that are normed are these
  traits.route_scale_key = "";
  traits.expert_groups = false;
  traits.known_values = {};
  traits.names.choice_bias = "";
  traits.names.expert_gate = traits.names.expert_up = traits.names.expert_down = "";
  traits.names.experts_gate_up = "mlp.experts.gate_up_proj";
  traits.names.experts_down = "mlp.experts.down_proj";
  return traits;
}

}  // namespace pecia::model::families
