// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weight_names.hpp"

#include <fmt/format.h>

namespace pecia::model {
namespace {

constexpr WeightNames llama = {.embedding = "model.embed_tokens",
                               .final_norm = "model.norm",
                               .head = "lm_head",
                               .attention_norm = "input_layernorm",
                               .ffn_norm = "post_attention_layernorm",
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
                               .down = "mlp.down_proj"};

constexpr WeightNames qwen3 = [] {
  WeightNames names = llama;
  names.q_norm = "self_attn.q_norm";
  names.k_norm = "self_attn.k_norm";
  return names;
}();

constexpr WeightNames glm = [] {
  WeightNames names = llama;
  names.gate = names.up = "";
  names.gate_up = "mlp.gate_up_proj";
  return names;
}();

constexpr WeightNames internlm2 = {.embedding = "model.tok_embeddings",
                                   .final_norm = "model.norm",
                                   .head = "output",
                                   .attention_norm = "attention_norm",
                                   .ffn_norm = "ffn_norm",
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

}  // namespace

const WeightNames& weight_names(Family family) {
  switch (family) {
    case Family::llama:
    case Family::mistral:
    case Family::qwen2:
      return llama;
    case Family::qwen3:
      return qwen3;
    case Family::glm:
      return glm;
    case Family::internlm2:
      return internlm2;
  }
  return llama;
}

std::string layer_name(int64_t layer, std::string_view name) {
  return fmt::format("model.layers.{}.{}", layer, name);
}

bool is_harmless(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq");
}

}  // namespace pecia::model
