// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits qwen3_5_moe() {
  FamilyTraits traits = qwen3_next();
  traits.family = Family::qwen3_5_moe;
  traits.model_type = "qwen3_5_moe_text";
  traits.outer_type = "qwen3_5_moe";
  traits.architectures = {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"};
  traits.examples = "Qwen3.5-35B-A3B, Qwen3.5-122B-A10B (text)";
  traits.beyond =
      "Qwen3.5's layers; a mixture of experts and a shared expert with a gate in each of them";
  traits.image_axes = true;
  traits.num_experts = 256;
  traits.experts_per_token = 8;
  traits.routing_configurable = false;
  traits.mixes_dense_layers = false;
  traits.dense_ffn_key = "intermediate_size";  // of no layer, and perhaps absent
  traits.dense_ffn = 5632;
  traits.names.experts_gate_up = "mlp.experts.gate_up_proj";
  traits.names.experts_down = "mlp.experts.down_proj";
  traits.names.recurrent = qwen3_5().names.recurrent;
  return traits;
}

}  // namespace pecia::model::families
