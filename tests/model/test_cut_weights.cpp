// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "tests/model/small_checkpoints.hpp"

namespace pecia::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(CutWeights, HaveTheRowsAndColumnsOfTheirHeads) {
  ModelConfig config = small_model(Family::llama);
  config.attention_bias = config.attention_output_bias = config.mlp_bias = true;
  CheckpointFile file = llama_file();
  add_qkv_biases(file);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    file.add(layer + "self_attn.o_proj.bias", {4}, 23);
    file.add(layer + "mlp.gate_proj.bias", {6}, 24);
    file.add(layer + "mlp.up_proj.bias", {6}, 25);
    file.add(layer + "mlp.down_proj.bias", {4}, 26);
  }
  const Weights first_half = load(config, file, {}, {2, 0});
  const Weights second_half = load(config, file, {}, {2, 1});
  const LayerWeights& layer = second_half.layers[0];
  expect_shape(layer.attention.q, 4, 4);  // heads 2 and 3 of [8, 4]
  EXPECT_EQ(first(layer.attention.q.parts[0].weight), 6 + 16);
  EXPECT_THAT(biases_of(layer.attention.q), ElementsAre(24, 25, 26, 27));
  expect_shape(layer.attention.k, 2, 4);  // KV head 1
  EXPECT_EQ(first(layer.attention.k.parts[0].weight), 7 + 8);
  expect_shape(layer.attention.o, 4, 4);  // columns 4 to 7 of [4, 8]
  EXPECT_THAT(values_of(layer.attention.o),
              ElementsAre(13, 14, 15, 16, 21, 22, 23, 24, 29, 30, 31, 32, 37, 38, 39, 40));
  expect_shape(layer.ffn.gate, 3, 4);  // rows 3 to 5 of [6, 4]
  EXPECT_EQ(first(layer.ffn.gate.parts[0].weight), 10 + 12);
  EXPECT_THAT(values_of(layer.ffn.down),
              ElementsAre(15, 16, 17, 21, 22, 23, 27, 28, 29, 33, 34, 35));
  // The products of the parts are added: one of them has the bias.
  EXPECT_TRUE(first_half.layers[0].attention.o.parts[0].bias &&
              first_half.layers[0].ffn.down.parts[0].bias);
  EXPECT_FALSE(layer.attention.o.parts[0].bias || layer.ffn.down.parts[0].bias);
  // Three tokens: one and two.
  EXPECT_EQ(first_half.embedding.rows(), 1);
  EXPECT_EQ(second_half.embedding.rows(), 2);
  EXPECT_EQ(first(second_half.embedding), 1 + 4);
  expect_shape(second_half.head, 2, 4);
}

TEST(CutWeights, OfACutAreThatCutOfTheWhole) {
  for (const Family family : {Family::llama, Family::glm, Family::internlm2}) {
    ModelConfig config = small_model(family);
    config.ffn = 8;
    config.attention_bias = family == Family::glm;
    CheckpointFile file = family == Family::llama ? llama_file()
                          : family == Family::glm ? glm_file()
                                                  : internlm2_file();
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
      if (family == Family::glm) file.add(layer + "mlp.gate_up_proj.weight", {16, 4}, 10);
      if (family == Family::llama)
        for (const std::string name : {"mlp.gate_proj", "mlp.up_proj"})
          file.add(layer + name + ".weight", {8, 4}, 10);
      if (family == Family::internlm2)
        for (const std::string name : {"feed_forward.w1", "feed_forward.w3"})
          file.add(layer + name + ".weight", {8, 4}, 10);
      file.add(
          layer + (family == Family::internlm2 ? "feed_forward.w2" : "mlp.down_proj") + ".weight",
          {4, 8}, 12);
    }
    const Weights whole = load(config, file, {}, {});
    for (int outer = 0; outer < 2; ++outer) {
      const Weights half = load(config, file, {}, {2, outer});
      for (int inner = 0; inner < 2; ++inner) {
        const parallel::WeightCut quarter{4, 2 * outer + inner};
        const LayerWeights once = cut_layer(whole.layers[1], config, 1, {}, quarter);
        const LayerWeights twice = cut_layer(half.layers[1], config, 1, {2, outer}, quarter);
        for (const MatrixKind kind : layer_kinds) {
          EXPECT_EQ(values_of(twice.matrix(kind)), values_of(once.matrix(kind)));
          EXPECT_FALSE(values_of(once.matrix(kind)).empty());
        }
        EXPECT_EQ(biases_of(twice.attention.q), biases_of(once.attention.q));
        EXPECT_EQ(biases_of(twice.attention.k), biases_of(once.attention.k));
      }
    }
  }
}

TEST(CutWeights, AreResidentAndConvertedAlone) {
  const ModelConfig config = small_model(Family::internlm2);
  const int64_t norms = 5 * 4;
  int64_t resident = 0, converted = 0;
  for (int index = 0; index < 2; ++index) {
    const Weights half = load(config, internlm2_file(), DType::bf16, {2, index});
    resident += half.resident_bytes();
    converted += half.converted_bytes();
    EXPECT_EQ(half.layers[0].attention.o.parts[0].weight.dtype(), DType::bf16);
    EXPECT_EQ(first(half.layers[0].attention.o.parts[0].weight), index == 0 ? 9 : 13);
  }
  EXPECT_EQ(converted, 2 * (config.parameters() - norms));
  EXPECT_EQ(resident, converted + 2 * norms * 4);  // norms stand on both
}

TEST(CutWeights, ThatCannotHoldAValueNameItsPlaceInTheWholeTensor) {
  CheckpointFile file = llama_file();
  file.add("model.layers.1.self_attn.o_proj.weight", {4, 8}, 65519.0f);  // + 31: beyond fp16
  try {
    load(small_model(Family::llama), file, DType::fp16, {2, 1});
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'model.layers.1.self_attn.o_proj.weight'"));
    EXPECT_THAT(error.what(), HasSubstr("at element 4,"));
  }
}

}  // namespace
}  // namespace pecia::model
