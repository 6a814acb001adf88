// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits qwen3_next() {
  FamilyTraits traits = qwen3_moe();
  traits.family = Family::qwen3_next;
  traits.model_type = "qwen3_next";
  traits.architectures = {"Qwen3NextForCausalLM"};
  traits.examples = "Qwen3-Next-80B-A3B, Qwen3-Coder-Next";
  traits.beyond =
      "gated delta nets in three of four layers; gates of attention, a quarter of each head "
      "rotated; "
      "a mixture of experts and a shared expert with a gate";
  add_delta_net(traits);
  traits.num_kv_heads = 2;
  traits.num_experts = 512;
  traits.experts_per_token = 10;
  traits.routing = kernels::Routing::of_chosen;  // probabilities that are normed are these
  traits.shared_ffn_key = "shared_expert_intermediate_size";
  traits.shared_ffn = 512;
  traits.names.shared_gate = "mlp.shared_expert.gate_proj";
  traits.names.shared_up = "mlp.shared_expert.up_proj";
  traits.names.shared_down = "mlp.shared_expert.down_proj";
  traits.names.shared_row_gate = "mlp.shared_expert_gate";
  traits.names.recurrent.qkvz = "linear_attn.in_proj_qkvz";
  traits.names.recurrent.ba = "linear_attn.in_proj_ba";
  return traits;
}

}  // namespace pecia::model::families
