// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits qwen2_moe() {
  FamilyTraits traits = qwen2();
  traits.family = Family::qwen2_moe;
  traits.model_type = "qwen2_moe";
  traits.architectures = {"Qwen2MoeForCausalLM"};
  traits.examples = "Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B";
  traits.beyond = "biases on q, k, v; a mixture of experts and a shared expert with a gate";
  traits.num_kv_heads = 16;
  traits.bias_key = "qkv_bias";
  traits.windows = WindowRule::by_list;
  traits.has_experts = true;
  traits.num_experts = 60;
  traits.experts_per_token = 4;
  traits.expert_ffn_key = "moe_intermediate_size";
  traits.shared_ffn_key = "shared_expert_intermediate_size";
  traits.shared_ffn = 5632;
  traits.routing_configurable = true;
  traits.mixes_dense_layers = true;
  traits.names.router = "mlp.gate";
  traits.names.expert_gate = "mlp.experts.{}.gate_proj";
  traits.names.expert_up = "mlp.experts.{}.up_proj";
  traits.names.expert_down = "mlp.experts.{}.down_proj";
  traits.names.shared_gate = "mlp.shared_expert.gate_proj";
  traits.names.shared_up = "mlp.shared_expert.up_proj";
  traits.names.shared_down = "mlp.shared_expert.down_proj";
  traits.names.shared_row_gate = "mlp.shared_expert_gate";
  return traits;
}

}  // namespace pecia::model::families
