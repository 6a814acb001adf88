// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits qwen3_moe() {
  FamilyTraits traits = qwen3();
  traits.family = Family::qwen3_moe;
  traits.model_type = "qwen3_moe";
  traits.architectures = {"Qwen3MoeForCausalLM"};
  traits.examples = "Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder-30B-A3B";
  traits.beyond = "Qwen3's norms; a mixture of experts in all or some layers";
  traits.head_dim = 0;
  traits.num_kv_heads = 4;
  traits.windows = WindowRule::by_list;
  traits.has_experts = true;
  traits.num_experts = 128;
  traits.experts_per_token = 8;
  traits.expert_ffn_key = "moe_intermediate_size";
  traits.routing_configurable = true;
  traits.mixes_dense_layers = true;
  traits.names.router = "mlp.gate";
  traits.names.expert_gate = "mlp.experts.{}.gate_proj";
  traits.names.expert_up = "mlp.experts.{}.up_proj";
  traits.names.expert_down = "mlp.experts.{}.down_proj";
  return traits;
}

}  // namespace pecia::model::families
