// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits llama() {
  return {.family = Family::llama,
          .model_type = "llama",
          .architectures = {"LlamaForCausalLM", "LLaMAForCausalLM"},
          .examples = "Llama 2, Llama 3 to 3.3, SmolLM2, Yi",
          .beyond = "biases, tied embeddings",
          .head_dim = 0,
          .rms_norm_eps = 1e-6,
          .partial_rotary_factor = 1.0,
          .eos_token_ids = {2},
          .bias_key = "attention_bias",
          .bias_default = false,
          .bias_on_output = true,
          .mlp_bias_configurable = true,
          .pairs = kernels::RopePairs::halves,
          .partial_rotation = false,
          .windows = WindowRule::never,
          .window_default = 0,
          .names = {.embedding = "model.embed_tokens",
                    .final_norm = "model.norm",
                    .head = "lm_head",
                    .attention_norm = "input_layernorm",
                    .ffn_norm = "post_attention_layernorm",
                    .post_attention_norm = "",
                    .post_ffn_norm = "",
                    .q_norm = "",
                    .k_norm = "",
                    .q = "self_attn.q_proj",
                    .k = "self_attn.k_proj",
                    .v = "self_attn.v_proj",
                    .qkv = "",
                    .o = "self_attn.o_proj",
                    .gate = "mlp.gate_proj",
                    .up = "mlp.up_proj",
                    .gate_up = "",
                    .down = "mlp.down_proj"}};
}

}  // namespace pecia::model::families
