// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits qwen3_5() {
  FamilyTraits traits = qwen3();
  traits.family = Family::qwen3_5;
  traits.model_type = "qwen3_5_text";
  traits.outer_type = "qwen3_5";
  traits.architectures = {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"};
  traits.examples = "Qwen3.5-9B, Qwen3.5-27B (text)";
  traits.beyond =
      "gated delta nets in three of four layers; gates of attention, a quarter of each head "
      "rotated";
  add_delta_net(traits);
  traits.image_axes = true;
  traits.num_kv_heads = 4;
  traits.names.recurrent.qkv = "linear_attn.in_proj_qkv";
  traits.names.recurrent.z = "linear_attn.in_proj_z";
  traits.names.recurrent.b = "linear_attn.in_proj_b";
  traits.names.recurrent.a = "linear_attn.in_proj_a";
  return traits;
}

}  // namespace pecia::model::families
