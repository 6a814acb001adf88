// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Checkpoints of a few elements for each way to store weights, and what tells their tensors apart.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lib/base/core/codes.hpp"
#include "lib/model/weights/weights.hpp"
#include "tests/model/checkpoint_file.hpp"

namespace pecia::model {

using test::CheckpointFile;

/// Vocabulary 3, width 4, FFN 6, 4 heads over 2 KV heads of 2 dimensions, 2 layers.
inline ModelConfig small_model(Family family) {
  ModelConfig config;
  config.family = family;
  config.vocab = 3;
  config.hidden = 4;
  config.ffn = 6;
  config.layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 2;
  return config;
}

/// Tensors of small_model(llama), also those of mistral.
inline CheckpointFile llama_file() {
  CheckpointFile file;
  file.add("model.embed_tokens.weight", {3, 4}, 1);
  file.add("model.norm.weight", {4}, 2);
  file.add("lm_head.weight", {3, 4}, 3);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    file.add(layer + "input_layernorm.weight", {4}, 4);
    file.add(layer + "post_attention_layernorm.weight", {4}, 5);
    file.add(layer + "self_attn.q_proj.weight", {8, 4}, 6);
    file.add(layer + "self_attn.k_proj.weight", {4, 4}, 7);
    file.add(layer + "self_attn.v_proj.weight", {4, 4}, 8);
    file.add(layer + "self_attn.o_proj.weight", {4, 8}, 9);
    file.add(layer + "mlp.gate_proj.weight", {6, 4}, 10);
    file.add(layer + "mlp.up_proj.weight", {6, 4}, 11);
    file.add(layer + "mlp.down_proj.weight", {4, 6}, 12);
  }
  return file;
}

inline void add_qkv_biases(CheckpointFile& file) {
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    file.add(layer + "self_attn.q_proj.bias", {8}, 20);
    file.add(layer + "self_attn.k_proj.bias", {4}, 21);
    file.add(layer + "self_attn.v_proj.bias", {4}, 22);
  }
}

inline CheckpointFile glm_file() {
  CheckpointFile file = llama_file();
  add_qkv_biases(file);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    file.tensors.erase(layer + "mlp.gate_proj.weight");
    file.tensors.erase(layer + "mlp.up_proj.weight");
    file.add(layer + "mlp.gate_up_proj.weight", {12, 4}, 10);
  }
  return file;
}

inline CheckpointFile internlm2_file() {
  CheckpointFile file;
  file.add("model.tok_embeddings.weight", {3, 4}, 1);
  file.add("model.norm.weight", {4}, 2);
  file.add("output.weight", {3, 4}, 3);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    file.add(layer + "attention_norm.weight", {4}, 4);
    file.add(layer + "ffn_norm.weight", {4}, 5);
    file.add(layer + "attention.wqkv.weight", {16, 4}, 100);
    file.add(layer + "attention.wo.weight", {4, 8}, 9);
    file.add(layer + "feed_forward.w1.weight", {6, 4}, 10);
    file.add(layer + "feed_forward.w3.weight", {6, 4}, 11);
    file.add(layer + "feed_forward.w2.weight", {4, 6}, 12);
  }
  return file;
}

inline Weights load(const ModelConfig& config, const CheckpointFile& file,
                    std::optional<DType> dtype = {}, parallel::WeightCut cut = {},
                    const CodeUse& codes = {}) {
  const test::TempFolder folder;
  file.write(folder);
  // Mapped files outlive the folder.
  return {config, io::Checkpoint(folder.path()), dtype, cut, codes};
}

/// First element, which tells the tensors of these files apart.
inline float first(const TensorView& tensor) {
  return load_as_float(tensor.data(), tensor.dtype(), 0);
}

inline std::vector<float> first_of_parts(const LinearWeight& linear) {
  std::vector<float> firsts;
  for (const LinearWeight::Part& part : linear.parts) firsts.push_back(first(part.weight));
  return firsts;
}

inline std::vector<float> biases_of(const LinearWeight& linear) {
  std::vector<float> values;
  for (const LinearWeight::Part& part : linear.parts)
    for (int64_t row = 0; row < part.bias.rows(); ++row)
      values.push_back(load_as_float(part.bias.data(), part.bias.dtype(), row));
  return values;
}

inline void expect_shape(const LinearWeight& linear, int64_t out, int64_t in) {
  EXPECT_EQ(linear.out(), out);
  EXPECT_EQ(linear.in(), in);
}
/// Every number of a projection in row order, blocks joined.
inline std::vector<float> values_of(const LinearWeight& linear) {
  std::vector<float> values;
  for (const LinearWeight::Part& part : linear.parts)
    for (int64_t row = 0; row < part.weight.rows(); ++row)
      for (int64_t column = 0; column < part.in(); ++column)
        values.push_back(load_number(part.weight.row(row), part.weight.dtype(),
                                     part.scales ? part.scales.row(row) : nullptr, column));
  return values;
}

}  // namespace pecia::model
