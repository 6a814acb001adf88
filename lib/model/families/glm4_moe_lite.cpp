// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits glm4_moe_lite() {
  FamilyTraits traits = deepseek_v3();
  traits.family = Family::glm4_moe_lite;
  traits.model_type = "glm4_moe_lite";
  traits.other_types = {};
  traits.architectures = {"Glm4MoeLiteForCausalLM"};
  traits.examples = "GLM-4.7-Flash";
  traits.beyond = "latent attention; a mixture of experts as in `glm4_moe`";
  traits.rms_norm_eps = 1e-5;
  traits.latent = {768, 512, 192, 64, 256};
  traits.num_experts = 64;
  traits.experts_per_token = 4;
  traits.first_dense_key = "";
  traits.dense_list_key = "mlp_layer_types";
  traits.route_scale = 1.8;
  traits.num_groups = traits.kept_groups = 1;
  return traits;
}

}  // namespace pecia::model::families
