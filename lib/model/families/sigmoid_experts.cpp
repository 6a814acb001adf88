// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

void add_sigmoid_experts(FamilyTraits& traits) {
  traits.has_experts = true;
  traits.expert_count_key = "n_routed_experts";
  traits.expert_ffn_key = "moe_intermediate_size";
  traits.shared_count_key = "n_shared_experts";
  traits.shared_count = 1;
  traits.first_dense_key = "first_k_dense_replace";
  traits.routing = kernels::Routing::sigmoid;
  traits.routing_configurable = true;
  traits.route_scale_key = "routed_scaling_factor";
  traits.expert_groups = true;
  traits.draft_layers_key = "num_nextn_predict_layers";
  traits.known_values = {{"scoring_func", R"("sigmoid")"}, {"topk_method", R"("noaux_tc")"}};
  traits.names.router = "mlp.gate";
  traits.names.choice_bias = "mlp.gate.e_score_correction_bias";
  traits.names.expert_gate = "mlp.experts.{}.gate_proj";
  traits.names.expert_up = "mlp.experts.{}.up_proj";
  traits.names.expert_down = "mlp.experts.{}.down_proj";
  traits.names.shared_gate = "mlp.shared_experts.gate_proj";
  traits.names.shared_up = "mlp.shared_experts.up_proj";
  traits.names.shared_down = "mlp.shared_experts.down_proj";
}

}  // namespace pecia::model::families
