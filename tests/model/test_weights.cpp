// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lib/base/core/error.hpp"
#include "tests/model/small_checkpoints.hpp"

namespace pecia::model {
namespace {

device::ThreadPool pool(2);

using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const ModelConfig& config, const CheckpointFile& file,
                     std::optional<DType> dtype = {}) {
  try {
    load(config, file, dtype);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Weights, Llama) {
  for (const Family family : {Family::llama, Family::mistral}) {
    const Weights weights = load(small_model(family), llama_file());
    EXPECT_EQ(first(weights.embedding), 1);
    EXPECT_EQ(first(weights.final_norm), 2);
    EXPECT_THAT(first_of_parts(weights.head), ElementsAre(3));
    expect_shape(weights.head, 3, 4);
    ASSERT_EQ(weights.layers.size(), 2u);
    for (const LayerWeights& layer : weights.layers) {
      EXPECT_EQ(first(layer.attention_norm), 4);
      EXPECT_EQ(first(layer.ffn_norm), 5);
      EXPECT_FALSE(layer.attention.q_norm || layer.attention.k_norm);
      EXPECT_THAT(first_of_parts(layer.attention.q), ElementsAre(6));
      EXPECT_THAT(first_of_parts(layer.attention.k), ElementsAre(7));
      EXPECT_THAT(first_of_parts(layer.attention.v), ElementsAre(8));
      EXPECT_THAT(first_of_parts(layer.attention.o), ElementsAre(9));
      EXPECT_THAT(first_of_parts(layer.ffn.gate), ElementsAre(10));
      EXPECT_THAT(first_of_parts(layer.ffn.up), ElementsAre(11));
      EXPECT_THAT(first_of_parts(layer.ffn.down), ElementsAre(12));
      expect_shape(layer.attention.q, 8, 4);
      expect_shape(layer.attention.k, 4, 4);
      expect_shape(layer.attention.o, 4, 8);
      expect_shape(layer.ffn.down, 4, 6);
      EXPECT_FALSE(layer.attention.q.parts[0].bias);
    }
  }
}

TEST(Weights, LayersAreTakenByNumber) {
  CheckpointFile file = llama_file();
  file.add("model.layers.1.self_attn.q_proj.weight", {8, 4}, 60);
  const Weights weights = load(small_model(Family::llama), file);
  EXPECT_THAT(first_of_parts(weights.layers[0].attention.q), ElementsAre(6));
  EXPECT_THAT(first_of_parts(weights.layers[1].attention.q), ElementsAre(60));
}

TEST(Weights, LlamaWithEveryBias) {
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
  const Weights weights = load(config, file);
  const LayerWeights& layer = weights.layers[1];
  EXPECT_EQ(first(layer.attention.o.parts[0].bias), 23);
  EXPECT_EQ(first(layer.ffn.gate.parts[0].bias), 24);
  EXPECT_EQ(first(layer.ffn.up.parts[0].bias), 25);
  EXPECT_EQ(first(layer.ffn.down.parts[0].bias), 26);
}

TEST(Weights, Qwen2) {
  ModelConfig config = small_model(Family::qwen2);
  config.attention_bias = true;
  CheckpointFile file = llama_file();
  add_qkv_biases(file);
  const Weights weights = load(config, file);
  EXPECT_THAT(biases_of(weights.layers[0].attention.q),
              ElementsAre(20, 21, 22, 23, 24, 25, 26, 27));
  EXPECT_THAT(biases_of(weights.layers[0].attention.k), ElementsAre(21, 22, 23, 24));
  EXPECT_THAT(biases_of(weights.layers[0].attention.v), ElementsAre(22, 23, 24, 25));
  EXPECT_FALSE(weights.layers[0].attention.o.parts[0].bias);
}

TEST(Weights, Qwen3) {
  ModelConfig config = small_model(Family::qwen3);
  config.qk_norm = QkNorm::each_head;
  CheckpointFile file = llama_file();
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    file.add(layer + "self_attn.q_norm.weight", {2}, 30);
    file.add(layer + "self_attn.k_norm.weight", {2}, 31);
  }
  const Weights weights = load(config, file);
  EXPECT_EQ(first(weights.layers[1].attention.q_norm), 30);
  EXPECT_EQ(first(weights.layers[1].attention.k_norm), 31);
  EXPECT_EQ(weights.layers[1].attention.k_norm.rows(), 2);
}

TEST(Weights, GlmKeepsGateAboveUpInOneTensor) {
  ModelConfig config = small_model(Family::glm);
  config.attention_bias = true;
  const Weights weights = load(config, glm_file());
  const LayerWeights& layer = weights.layers[0];
  EXPECT_THAT(first_of_parts(layer.ffn.gate), ElementsAre(10));
  EXPECT_THAT(first_of_parts(layer.ffn.up), ElementsAre(10 + 6 * 4));
  expect_shape(layer.ffn.gate, 6, 4);
  expect_shape(layer.ffn.up, 6, 4);
  EXPECT_FALSE(layer.attention.o.parts[0].bias);
}

TEST(Weights, InternLm2PacksQueriesKeyAndValueOfEachKvHead) {
  const Weights weights = load(small_model(Family::internlm2), internlm2_file());
  EXPECT_EQ(first(weights.embedding), 1);
  EXPECT_THAT(first_of_parts(weights.head), ElementsAre(3));
  const LayerWeights& layer = weights.layers[1];
  // Rows of two dimensions each: q0 q1 k0 v0 q2 q3 k1 v1; row r begins with 100 + 4 r.
  EXPECT_THAT(first_of_parts(layer.attention.q), ElementsAre(100, 132));
  EXPECT_THAT(first_of_parts(layer.attention.k), ElementsAre(116, 148));
  EXPECT_THAT(first_of_parts(layer.attention.v), ElementsAre(124, 156));
  expect_shape(layer.attention.q, 8, 4);
  expect_shape(layer.attention.k, 4, 4);
  EXPECT_THAT(first_of_parts(layer.attention.o), ElementsAre(9));
  EXPECT_THAT(first_of_parts(layer.ffn.gate), ElementsAre(10));
  EXPECT_THAT(first_of_parts(layer.ffn.up), ElementsAre(11));
  EXPECT_THAT(first_of_parts(layer.ffn.down), ElementsAre(12));
}

TEST(Weights, InternLm2PacksItsBiasesLikewise) {
  ModelConfig config = small_model(Family::internlm2);
  config.attention_bias = config.attention_output_bias = true;
  CheckpointFile file = internlm2_file();
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    file.add(layer + "attention.wqkv.bias", {16}, 40);
    file.add(layer + "attention.wo.bias", {4}, 60);
  }
  const Weights weights = load(config, file);
  const LayerWeights& layer = weights.layers[0];
  EXPECT_THAT(biases_of(layer.attention.q), ElementsAre(40, 41, 42, 43, 48, 49, 50, 51));
  EXPECT_THAT(biases_of(layer.attention.k), ElementsAre(44, 45, 52, 53));
  EXPECT_THAT(biases_of(layer.attention.v), ElementsAre(46, 47, 54, 55));
  EXPECT_THAT(biases_of(layer.attention.o), ElementsAre(60, 61, 62, 63));
}

TEST(Weights, Phi3PacksAllQueriesThenKeysThenValues) {
  CheckpointFile file = llama_file();
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                             "mlp.gate_proj", "mlp.up_proj"})
      file.tensors.erase(layer + name + ".weight");
    file.add(layer + "self_attn.qkv_proj.weight", {16, 4}, 100);
    file.add(layer + "mlp.gate_up_proj.weight", {12, 4}, 10);
  }
  const Weights weights = load(small_model(Family::phi3), file);
  const LayerWeights& layer = weights.layers[1];
  // Eight rows of q, four of k, four of v; row r begins with 100 + 4 r.
  EXPECT_THAT(first_of_parts(layer.attention.q), ElementsAre(100));
  EXPECT_THAT(first_of_parts(layer.attention.k), ElementsAre(132));
  EXPECT_THAT(first_of_parts(layer.attention.v), ElementsAre(148));
  expect_shape(layer.attention.q, 8, 4);
  expect_shape(layer.attention.v, 4, 4);
  EXPECT_THAT(first_of_parts(layer.ffn.up), ElementsAre(10 + 6 * 4));
}

TEST(Weights, Olmo2HasNormsAfterBlocksAndOverAllHeads) {
  ModelConfig config = small_model(Family::olmo2);
  config.qk_norm = QkNorm::all_heads;
  CheckpointFile file = llama_file();
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    file.tensors.erase(layer + "input_layernorm.weight");
    file.add(layer + "post_feedforward_layernorm.weight", {4}, 30);
    file.add(layer + "self_attn.q_norm.weight", {8}, 31);
    file.add(layer + "self_attn.k_norm.weight", {4}, 32);
  }
  const Weights weights = load(config, file);
  const LayerWeights& layer = weights.layers[0];
  EXPECT_FALSE(layer.attention_norm || layer.ffn_norm);
  EXPECT_EQ(first(layer.post_attention_norm), 5);
  EXPECT_EQ(first(layer.post_ffn_norm), 30);
  EXPECT_EQ(layer.attention.q_norm.rows(), 8);
  EXPECT_EQ(layer.attention.k_norm.rows(), 4);
}

TEST(Weights, ApertusHasConstantsInPlaceOfAGate) {
  ModelConfig config = small_model(Family::apertus);
  config.xielu = true;
  config.qk_norm = QkNorm::each_head;
  CheckpointFile file = llama_file();
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* name : {"input_layernorm", "post_attention_layernorm", "mlp.gate_proj"})
      file.tensors.erase(layer + name + ".weight");
    file.add(layer + "attention_layernorm.weight", {4}, 30);
    file.add(layer + "feedforward_layernorm.weight", {4}, 31);
    file.add(layer + "self_attn.q_norm.weight", {2}, 32);
    file.add(layer + "self_attn.k_norm.weight", {2}, 33);
    file.add(layer + "mlp.act_fn.alpha_p", {1}, 0);
    file.add(layer + "mlp.act_fn.alpha_n", {1}, 2);
    file.add(layer + "mlp.act_fn.beta", {}, 3);
    file.add(layer + "mlp.act_fn.eps", {1}, -1);
  }
  const Weights weights = load(config, file, {}, {.count = 2, .index = 1});
  const LayerWeights& layer = weights.layers[1];
  EXPECT_EQ(first(layer.attention_norm), 30);
  EXPECT_EQ(first(layer.ffn_norm), 31);
  EXPECT_TRUE(layer.ffn.gate.parts.empty());
  expect_shape(layer.ffn.up, 3, 4);
  ASSERT_TRUE(layer.ffn.xielu);
  EXPECT_NEAR(layer.ffn.xielu->positive, 0.69314718, 1e-6);      // ln (1 + e⁰)
  EXPECT_NEAR(layer.ffn.xielu->negative, 3 + 2.12692801, 1e-6);  // 3 + ln (1 + e²)
  EXPECT_EQ(layer.ffn.xielu->slope, 3);
  EXPECT_EQ(layer.ffn.xielu->most, -1);
  file.tensors.erase("model.layers.1.mlp.act_fn.eps");
  EXPECT_THAT(error_of(config, file), HasSubstr("'model.layers.1.mlp.act_fn.eps' is missing"));
}

TEST(Weights, NormsGetTheOffsetAndTheFinalOneIsDivided) {
  ModelConfig config = small_model(Family::llama);
  config.norm_weight_offset = 1;
  config.logits_divisor = 4;
  const Weights weights = load(config, llama_file());
  EXPECT_EQ(first(weights.layers[1].attention_norm), 5);
  EXPECT_EQ(first(weights.layers[1].ffn_norm), 6);
  EXPECT_EQ(first(weights.final_norm), 0.75f);
  EXPECT_EQ(weights.final_norm.dtype(), DType::fp32);
}

TEST(Weights, OfAModelWithOtherPartsStandUnderLongerNames) {
  for (const bool old : {true, false}) {
    const CheckpointFile plain = llama_file();
    CheckpointFile file;
    for (const auto& [name, tensor] : plain.tensors) {
      const bool head = name.starts_with("lm_head");
      const std::string longer = old    ? "language_model." + name
                                 : head ? name
                                        : "model.language_model." + name.substr(6);
      file.tensors[longer] = tensor;
    }
    file.add(old ? "vision_tower.a.weight" : "model.vision_tower.a.weight", {2, 2});
    file.add(old ? "multi_modal_projector.b" : "model.multi_modal_projector.b", {2});
    const Weights weights = load(small_model(Family::llama), file);
    EXPECT_EQ(first(weights.embedding), 1);
    EXPECT_THAT(first_of_parts(weights.head), ElementsAre(3));
    EXPECT_EQ(first(weights.layers[1].ffn_norm), 5);
  }
  CheckpointFile file = llama_file();
  file.add("vision_tower.a.weight", {2, 2});  // of no such model
  EXPECT_THAT(error_of(small_model(Family::llama), file), HasSubstr("vision_tower.a.weight"));
}

TEST(Weights, TiedEmbeddingsStandUnderEitherNameOrBoth) {
  ModelConfig config = small_model(Family::llama);
  config.tied_embeddings = true;
  CheckpointFile both = llama_file();
  both.add("lm_head.weight", {3, 4}, 1);
  CheckpointFile only_embedding = both, only_head = both;
  only_embedding.tensors.erase("lm_head.weight");
  only_head.tensors.erase("model.embed_tokens.weight");
  for (const CheckpointFile& file : {both, only_embedding, only_head}) {
    const Weights weights = load(config, file);
    EXPECT_EQ(first(weights.embedding), 1);
    EXPECT_EQ(weights.head.parts[0].weight.data(), weights.embedding.data());
    EXPECT_EQ(weights.resident_bytes(), config.parameters() * 4);
  }
  EXPECT_THAT(error_of(config, llama_file()),
              testing::AllOf(HasSubstr("lm_head.weight"), HasSubstr("tie_word_embeddings")));
}

TEST(Weights, OfAModelForEmbeddingHaveNoHeadAndShorterNames) {
  CheckpointFile without_head = llama_file(), shorter;
  without_head.tensors.erase("lm_head.weight");
  for (const auto& [name, tensor] : without_head.tensors) shorter.tensors[name.substr(6)] = tensor;
  for (const CheckpointFile& file : {without_head, shorter}) {
    const Weights weights = load(small_model(Family::llama), file);
    EXPECT_FALSE(weights.has_head());
    EXPECT_EQ(first(weights.embedding), 1);
    EXPECT_EQ(first(weights.layers[1].ffn_norm), 5);
  }
  shorter.add("layers.7.mlp.weight", {2, 2});
  EXPECT_THAT(error_of(small_model(Family::llama), shorter), HasSubstr("layers.7.mlp.weight"));
}

TEST(Weights, MappedTensorsAreUsedInPlace) {
  const Weights weights = load(small_model(Family::llama), llama_file());
  EXPECT_EQ(weights.embedding.data(),
            weights.checkpoint().tensor("model.embed_tokens.weight").data());
  EXPECT_EQ(weights.resident_bytes(), small_model(Family::llama).parameters() * 4);
  EXPECT_EQ(weights.converted_bytes(), 0);
}

TEST(Weights, MatricesAreConvertedAndVectorsStay) {
  const ModelConfig config = small_model(Family::internlm2);
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    const Weights weights = load(config, internlm2_file(), dtype);
    EXPECT_EQ(weights.embedding.dtype(), dtype);
    EXPECT_EQ(weights.final_norm.dtype(), DType::fp32);
    EXPECT_EQ(weights.layers[0].attention_norm.dtype(), DType::fp32);
    EXPECT_EQ(weights.layers[1].attention.k.parts[1].weight.dtype(), dtype);
    EXPECT_THAT(first_of_parts(weights.layers[1].attention.k), ElementsAre(116, 148));
    const int64_t vector_elements = 5 * 4;
    const int64_t matrix_elements = config.parameters() - vector_elements;
    EXPECT_EQ(weights.converted_bytes(), 2 * matrix_elements);
    EXPECT_EQ(weights.resident_bytes(), 2 * matrix_elements + 4 * vector_elements);
  }
}

TEST(Weights, NarrowTensorsAreWidened) {
  CheckpointFile file = llama_file();
  file.add("model.layers.0.mlp.up_proj.weight", {6, 4}, 7, DType::bf16);
  const Weights weights = load(small_model(Family::llama), file, DType::fp32);
  EXPECT_EQ(weights.layers[0].ffn.up.parts[0].weight.dtype(), DType::fp32);
  EXPECT_THAT(first_of_parts(weights.layers[0].ffn.up), ElementsAre(7));
  EXPECT_EQ(weights.converted_bytes(), 6 * 4 * 4);
}

TEST(Weights, StayValidWhenMoved) {
  Weights weights = load(small_model(Family::llama), llama_file(), DType::bf16);
  const Weights moved = std::move(weights);
  EXPECT_EQ(first(moved.embedding), 1);
  EXPECT_EQ(first(moved.final_norm), 2);
}

TEST(Weights, RefuseWhatTheTargetTypeCannotHold) {
  CheckpointFile file = llama_file();
  file.tensors["model.layers.1.mlp.down_proj.weight"].values[5] = 70000.0f;
  EXPECT_THAT(error_of(small_model(Family::llama), file, DType::fp16),
              testing::AllOf(HasSubstr("model.layers.1.mlp.down_proj.weight"), HasSubstr("70000"),
                             HasSubstr("element 5"), HasSubstr("fp16")));
  EXPECT_NO_THROW(load(small_model(Family::llama), file, DType::bf16));
}

TEST(Weights, NameAMissingTensor) {
  CheckpointFile file = llama_file();
  file.tensors.erase("model.layers.1.self_attn.k_proj.weight");
  EXPECT_THAT(error_of(small_model(Family::llama), file),
              testing::AllOf(HasSubstr("'model.layers.1.self_attn.k_proj.weight' is missing"),
                             HasSubstr("[4, 4]")));
  ModelConfig biased = small_model(Family::llama);
  biased.attention_bias = true;
  EXPECT_THAT(error_of(biased, llama_file()), HasSubstr("model.layers.0.self_attn.q_proj.bias"));
}

TEST(Weights, NameAMisshapenTensor) {
  CheckpointFile file = llama_file();
  file.add("model.layers.0.self_attn.o_proj.weight", {8, 4});
  EXPECT_THAT(error_of(small_model(Family::llama), file),
              testing::AllOf(HasSubstr("model.safetensors"),
                             HasSubstr("'model.layers.0.self_attn.o_proj.weight'"),
                             HasSubstr("[8, 4]"), HasSubstr("[4, 8]")));
  file = llama_file();
  file.add("model.norm.weight", {4, 1});
  EXPECT_THAT(error_of(small_model(Family::llama), file), HasSubstr("[4, 1]"));
}

TEST(Weights, NameALeftOverTensor) {
  CheckpointFile file = llama_file();
  file.add("model.layers.2.self_attn.q_proj.weight", {8, 4});
  EXPECT_THAT(error_of(small_model(Family::llama), file),
              testing::AllOf(HasSubstr("'model.layers.2.self_attn.q_proj.weight'"),
                             HasSubstr("[8, 4]"), HasSubstr("2 layers")));
  file = llama_file();
  file.add("model.layers.0.self_attn.q_proj.bias", {8});
  EXPECT_THAT(error_of(small_model(Family::llama), file), HasSubstr("q_proj.bias"));
}

TEST(Weights, RotaryFrequenciesOfOldCheckpointsAreNoLeftOver) {
  CheckpointFile file = llama_file();
  file.add("model.layers.0.self_attn.rotary_emb.inv_freq", {1});
  EXPECT_NO_THROW(load(small_model(Family::llama), file));
}

TEST(Weights, RefuseTensorsThatAreNoFloats) {
  CheckpointFile file = llama_file();
  file.add("model.layers.0.mlp.up_proj.weight", {6, 4}, 0, DType::uint8);
  EXPECT_THAT(error_of(small_model(Family::llama), file),
              testing::AllOf(HasSubstr("model.layers.0.mlp.up_proj.weight"), HasSubstr("uint8")));
}

TEST(Weights, NameNanAmongCodesOfFp8) {
  ModelConfig config = small_model(Family::llama);
  config.quantization = StoredQuantization{.form = StoredForm::fp8};
  const std::string name = "model.layers.0.mlp.up_proj";
  CheckpointFile file = llama_file();
  file.tensors[name + ".weight"].dtype = DType::fp8;
  file.add(name + ".weight_scale", {1}, 1);
  const CodeUse use{.stored_fp8 = true};
  EXPECT_NO_THROW(load(config, file, {}, {}, use).check_finite(0, 1, pool));
  file.tensors[name + ".weight"].values[5] = NAN;
  const Weights weights = load(config, file, {}, {}, use);
  try {
    weights.check_finite(0, 1, pool);
    FAIL() << "NaN passed";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(HasSubstr("'" + name + ".weight'"), HasSubstr("element 5")));
  }
}

class CheckFinite : public testing::TestWithParam<DType> {};

TEST_P(CheckFinite, ExactlyOneShareNamesTheTensorAndElement) {
  const ModelConfig config = small_model(Family::llama);
  for (const auto& [name, tensor] : llama_file().tensors) {
    CheckpointFile file = llama_file();
    file.tensors[name].dtype = GetParam();
    file.tensors[name].values[3] = name.ends_with("norm.weight") ? -INFINITY : NAN;
    const Weights weights = load(config, file);
    for (const int num_parts : {1, 2, 3, 7, 64}) {
      int found = 0;
      for (int part = 0; part < num_parts; ++part) try {
          weights.check_finite(part, num_parts, pool);
        } catch (const InputError& error) {
          ++found;
          EXPECT_THAT(error.what(),
                      testing::AllOf(HasSubstr("'" + name + "'"), HasSubstr("element 3")));
        }
      EXPECT_EQ(found, 1) << name << " in " << num_parts << " shares";
    }
  }
}

TEST_P(CheckFinite, SoundWeightsPass) {
  CheckpointFile file = llama_file();
  for (auto& [name, tensor] : file.tensors) tensor.dtype = GetParam();
  const Weights weights = load(small_model(Family::llama), file);
  for (int part = 0; part < 5; ++part) EXPECT_NO_THROW(weights.check_finite(part, 5, pool));
}

INSTANTIATE_TEST_SUITE_P(EveryType, CheckFinite,
                         testing::Values(DType::fp32, DType::bf16, DType::fp16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

}  // namespace
}  // namespace pecia::model
