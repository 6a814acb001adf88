// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits internlm2() {
  FamilyTraits traits = llama();
  traits.family = Family::internlm2;
  traits.model_type = "internlm2";
  traits.architectures = {"InternLM2ForCausalLM"};
  traits.examples = "InternLM2, InternLM2.5";
  traits.beyond = "packed `wqkv`";
  traits.bias_key = "bias";
  traits.bias_default = true;
  traits.mlp_bias_configurable = false;
  traits.names = {.embedding = "model.tok_embeddings",
                  .final_norm = "model.norm",
                  .head = "output",
                  .attention_norm = "attention_norm",
                  .ffn_norm = "ffn_norm",
                  .post_attention_norm = "",
                  .post_ffn_norm = "",
                  .q_norm = "",
                  .k_norm = "",
                  .q = "",
                  .k = "",
                  .v = "",
                  .qkv = "attention.wqkv",
                  .o = "attention.wo",
                  .gate = "feed_forward.w1",
                  .up = "feed_forward.w3",
                  .gate_up = "",
                  .down = "feed_forward.w2"};
  return traits;
}

}  // namespace pecia::model::families
