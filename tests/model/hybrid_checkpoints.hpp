// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Checkpoints of a recurrent layer and one with attention, as each family packs them.

#include "tests/model/small_checkpoints.hpp"

namespace pecia::model {

namespace hybrid_sizes {
/// Two key heads of 3 dimensions, four heads of 2, three rows of convolution, and hidden size 4.
inline constexpr int64_t key_heads = 2, key_dim = 3, heads = 4, value_dim = 2, conv_rows = 3,
                         hidden = 4;
inline constexpr int64_t keys = key_heads * key_dim, values = heads * value_dim;
}  // namespace hybrid_sizes

/// Two layers: a recurrence, and attention with 4 heads of 2 over 2 KV heads.
inline ModelConfig hybrid_model(const std::string& type) {
  std::string text = R"({"vocab_size": 3, "hidden_size": 4, "intermediate_size": 6,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "max_position_embeddings": 64, "model_type": ")" +
                     type + "\"";
  if (type == "granitemoehybrid")
    text += R"(, "layer_types": ["mamba", "attention"], "num_local_experts": 0,
        "head_dim": 2, "shared_intermediate_size": 6, "mamba_n_heads": 4, "mamba_d_head": 2, "mamba_d_state": 3,
        "mamba_n_groups": 2, "mamba_d_conv": 3)";
  else
    text += R"(, "layer_types": ["linear_attention", "full_attention"], "head_dim": 2,
        "partial_rotary_factor": 1.0, "linear_num_key_heads": 2, "linear_key_head_dim": 3,
        "linear_num_value_heads": 4, "linear_value_head_dim": 2, "linear_conv_kernel_dim": 3)";
  if (type == "qwen3_next") text += R"(, "mlp_only_layers": [0, 1], "moe_intermediate_size": 6)";
  return parse_config(text + "}", "config.json");
}

inline CheckpointFile hybrid_file(const std::string& type) {
  using namespace hybrid_sizes;
  CheckpointFile file;
  const bool mamba = type == "granitemoehybrid";
  file.add("model.embed_tokens.weight", {3, hidden}, 1);
  file.add("model.norm.weight", {hidden}, 2);
  file.add("lm_head.weight", {3, hidden}, 3);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    file.add(layer + "input_layernorm.weight", {hidden}, 4);
    file.add(layer + "post_attention_layernorm.weight", {hidden}, 5);
    if (mamba) {
      file.add(layer + "shared_mlp.input_linear.weight", {12, hidden}, 6);
      file.add(layer + "shared_mlp.output_linear.weight", {hidden, 6}, 7);
      continue;
    }
    for (const std::string name : {"gate", "up"})
      file.add(layer + "mlp." + name + "_proj.weight", {6, hidden}, 6);
    file.add(layer + "mlp.down_proj.weight", {hidden, 6}, 7);
  }
  const std::string attention = "model.layers.1.self_attn.";
  file.add(attention + "q_proj.weight", {mamba ? 8 : 16, hidden}, 10);
  file.add(attention + "k_proj.weight", {4, hidden}, 11);
  file.add(attention + "v_proj.weight", {4, hidden}, 12);
  file.add(attention + "o_proj.weight", {hidden, 8}, 13);
  if (!mamba) file.add(attention + "q_norm.weight", {2}, 14);
  if (!mamba) file.add(attention + "k_norm.weight", {2}, 15);
  const std::string mixer = mamba ? "model.layers.0.mamba." : "model.layers.0.linear_attn.";
  const int64_t channels = 2 * keys + values;
  file.add(mixer + "conv1d.weight", {channels, 1, conv_rows}, 20);
  file.add(mixer + "A_log", {heads}, -1);
  file.add(mixer + "dt_bias", {heads}, 22);
  file.add(mixer + "norm.weight", {mamba ? values : value_dim}, 23);
  file.add(mixer + "out_proj.weight", {hidden, values}, 24);
  if (mamba) {
    file.add(mixer + "in_proj.weight", {2 * values + 2 * keys + heads, hidden}, 25);
    file.add(mixer + "conv1d.bias", {channels}, 26);
    file.add(mixer + "D", {heads}, 27);
  } else if (type == "qwen3_next") {
    file.add(mixer + "in_proj_qkvz.weight", {2 * keys + 2 * values, hidden}, 25);
    file.add(mixer + "in_proj_ba.weight", {2 * heads, hidden}, 26);
  } else {
    file.add(mixer + "in_proj_qkv.weight", {channels, hidden}, 25);
    file.add(mixer + "in_proj_z.weight", {values, hidden}, 26);
    file.add(mixer + "in_proj_b.weight", {heads, hidden}, 27);
    file.add(mixer + "in_proj_a.weight", {heads, hidden}, 28);
  }
  return file;
}

}  // namespace pecia::model
