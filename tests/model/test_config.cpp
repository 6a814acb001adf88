// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "lib/base/core/error.hpp"
#include "lib/model/config/config.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::model {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ModelConfig read(const std::string& config, const std::string& generation = "") {
  const test::TempFolder folder;
  folder.write("config.json", config);
  if (!generation.empty()) folder.write("generation_config.json", generation);
  return read_config(folder.path());
}

std::string error_of(const std::string& config, const std::string& generation = "") {
  try {
    read(config, generation);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

// Configurations as published; the numbers of parameters are those of the models' pages.

const std::string llama_3_1_8b = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096,
  "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072,
  "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.43.0.dev0", "use_cache": true, "vocab_size": 128256})";

const std::string mistral_7b = R"({
  "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
  "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
  "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
  "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "vocab_size": 32000})";

const std::string qwen2_5_7b = R"({
  "architectures": ["Qwen2ForCausalLM"], "bos_token_id": 151643, "eos_token_id": 151645,
  "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944,
  "max_position_embeddings": 32768, "max_window_layers": 28, "model_type": "qwen2",
  "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false,
  "vocab_size": 152064})";

const std::string qwen3_8b = R"({
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "bos_token_id": 151643,
  "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
  "intermediate_size": 12288, "max_position_embeddings": 40960, "max_window_layers": 36,
  "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 36,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
  "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "use_sliding_window": false, "vocab_size": 151936})";

const std::string glm_4_9b = R"({
  "architectures": ["GlmForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
  "eos_token_id": [151329, 151336, 151338], "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 4096, "intermediate_size": 13696, "max_position_embeddings": 131072,
  "model_type": "glm", "num_attention_heads": 32, "num_hidden_layers": 40,
  "num_key_value_heads": 2, "pad_token_id": 151329, "partial_rotary_factor": 0.5,
  "rms_norm_eps": 1.5625e-07, "rope_theta": 10000.0, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "vocab_size": 151552})";

const std::string internlm2_7b = R"({
  "architectures": ["InternLM2ForCausalLM"], "bias": false, "bos_token_id": 1, "eos_token_id": 2,
  "auto_map": {"AutoConfig": "configuration_internlm2.InternLM2Config"},
  "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
  "max_position_embeddings": 32768, "model_type": "internlm2", "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
  "rope_scaling": {"type": "dynamic", "factor": 2.0}, "rope_theta": 1000000,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 92544})";

/// `config` with the keys of `patch` put in; null removes a key.
std::string with(const std::string& config, const std::string& patch) {
  auto object = nlohmann::json::parse(config);
  object.merge_patch(nlohmann::json::parse(patch));
  return object.dump();
}

/// The same configuration as transformers 5 writes it.
std::string in_new_style(const std::string& config) {
  auto object = nlohmann::json::parse(config);
  auto rope = object.value("rope_scaling", nlohmann::json());
  if (rope.is_null()) rope = {{"rope_type", "default"}};
  if (rope.contains("type")) {
    rope["rope_type"] = rope["type"];
    rope.erase("type");
  }
  rope["rope_theta"] = object["rope_theta"];
  if (object.contains("partial_rotary_factor"))
    rope["partial_rotary_factor"] = object["partial_rotary_factor"];
  object["rope_parameters"] = rope;
  object["dtype"] = object["torch_dtype"];
  for (const char* key : {"rope_scaling", "rope_theta", "partial_rotary_factor", "torch_dtype"})
    object.erase(key);
  return object.dump();
}

TEST(ReadConfig, Llama) {
  for (const std::string& text : {llama_3_1_8b, in_new_style(llama_3_1_8b)}) {
    const ModelConfig config = read(text);
    EXPECT_EQ(config.family, Family::llama);
    EXPECT_EQ(config.parameters(), 8'030'261'248);
    EXPECT_EQ(config.vocab, 128256);
    EXPECT_EQ(config.hidden, 4096);
    EXPECT_EQ(config.ffn, 14336);
    EXPECT_EQ(config.layers, 32);
    EXPECT_EQ(config.num_heads, 32);
    EXPECT_EQ(config.num_kv_heads, 8);
    EXPECT_EQ(config.head_dim, 128);
    EXPECT_EQ(config.max_positions, 131072);
    EXPECT_EQ(config.rms_norm_eps, 1e-5);
    EXPECT_EQ(config.rope.theta, 500000.0);
    EXPECT_EQ(config.rope.rotary_dim, 128);
    EXPECT_EQ(config.rope.pairs, kernels::RopePairs::halves);
    EXPECT_EQ(config.rope.scaling, RopeScaling::llama3);
    EXPECT_EQ(config.rope.factor, 8.0);
    EXPECT_EQ(config.rope.low_freq_factor, 1.0);
    EXPECT_EQ(config.rope.high_freq_factor, 4.0);
    EXPECT_EQ(config.rope.original_max_positions, 8192);
    EXPECT_THAT(config.windows(), testing::AllOf(testing::SizeIs(32), Each(0)));
    EXPECT_FALSE(config.tied_embeddings);
    EXPECT_FALSE(config.attention_bias);
    EXPECT_FALSE(config.attention_output_bias);
    EXPECT_FALSE(config.mlp_bias);
    EXPECT_EQ(config.qk_norm, QkNorm::none);
    EXPECT_EQ(config.stored_dtype, DType::bf16);
    EXPECT_THAT(config.stop_token_ids, ElementsAre(128001));
    EXPECT_EQ(config.kv_bytes_per_token(DType::bf16), 131072);  // 16 GiB for its 131072 tokens
    // 2 × (parameters − embedding − 65 norms of 4096)
    EXPECT_EQ(config.flops_per_token(), 2.0 * (8'030'261'248 - 525'336'576 - 266'240));
  }
}

TEST(ReadConfig, Mistral) {
  for (const std::string& text : {mistral_7b, in_new_style(mistral_7b)}) {
    const ModelConfig config = read(text);
    EXPECT_EQ(config.family, Family::mistral);
    EXPECT_EQ(config.parameters(), 7'241'732'096);
    EXPECT_EQ(config.head_dim, 128);
    EXPECT_THAT(config.windows(), testing::AllOf(testing::SizeIs(32), Each(4096)));
    EXPECT_EQ(config.rope.scaling, RopeScaling::none);
    EXPECT_EQ(config.rope.theta, 10000.0);
  }
}

TEST(ReadConfig, Qwen2) {
  for (const std::string& text : {qwen2_5_7b, in_new_style(qwen2_5_7b)}) {
    const ModelConfig config = read(text);
    EXPECT_EQ(config.family, Family::qwen2);
    EXPECT_EQ(config.parameters(), 7'615'616'512);
    EXPECT_TRUE(config.attention_bias);
    EXPECT_FALSE(config.attention_output_bias);
    EXPECT_THAT(config.windows(), testing::AllOf(testing::SizeIs(28), Each(0)));
    EXPECT_EQ(config.rope.theta, 1e6);
  }
}

TEST(ReadConfig, Qwen3) {
  for (const std::string& text : {qwen3_8b, in_new_style(qwen3_8b)}) {
    const ModelConfig config = read(text);
    EXPECT_EQ(config.family, Family::qwen3);
    EXPECT_EQ(config.parameters(), 8'190'735'360);
    EXPECT_EQ(config.qk_norm, QkNorm::each_head);
    EXPECT_FALSE(config.attention_bias);
    EXPECT_EQ(config.max_positions, 40960);
  }
}

TEST(ReadConfig, Glm) {
  for (const std::string& text : {glm_4_9b, in_new_style(glm_4_9b)}) {
    const ModelConfig config = read(text);
    EXPECT_EQ(config.family, Family::glm);
    EXPECT_EQ(config.parameters(), 9'399'951'360);
    EXPECT_TRUE(config.attention_bias);
    EXPECT_FALSE(config.attention_output_bias);
    EXPECT_EQ(config.rope.rotary_dim, 64);
    EXPECT_EQ(config.rope.pairs, kernels::RopePairs::interleaved);
    EXPECT_THAT(config.stop_token_ids, ElementsAre(151329, 151336, 151338));
  }
}

TEST(ReadConfig, InternLm2) {
  for (const std::string& text : {internlm2_7b, in_new_style(internlm2_7b)}) {
    const ModelConfig config = read(text);
    EXPECT_EQ(config.family, Family::internlm2);
    EXPECT_EQ(config.parameters(), 7'737'708'544);
    EXPECT_FALSE(config.attention_bias);
    EXPECT_EQ(config.rope.scaling, RopeScaling::dynamic);
    EXPECT_EQ(config.rope.factor, 2.0);
    EXPECT_EQ(config.rope.original_max_positions, 32768);
    EXPECT_EQ(config.max_positions, 65536);
  }
}

TEST(ReadConfig, FillsAbsentKeysAsTheFamilyDoes) {
  const std::string sizes = R"({"vocab_size": 100, "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 8192, )";
  const ModelConfig llama = read(sizes + R"("model_type": "llama"})");
  EXPECT_EQ(llama.num_kv_heads, 4);
  EXPECT_EQ(llama.head_dim, 16);
  EXPECT_EQ(llama.rms_norm_eps, 1e-6);
  EXPECT_EQ(llama.rope.theta, 10000.0);
  EXPECT_FALSE(llama.attention_bias);
  EXPECT_FALSE(llama.tied_embeddings);
  EXPECT_THAT(llama.stop_token_ids, ElementsAre(2));
  EXPECT_EQ(llama.stored_dtype, std::nullopt);
  EXPECT_EQ(llama.sha256.size(), 64u);

  EXPECT_THAT(read(sizes + R"("model_type": "mistral"})").windows(), ElementsAre(4096, 4096));
  EXPECT_THAT(read(sizes + R"("model_type": "mistral", "sliding_window": null})").windows(),
              ElementsAre(0, 0));

  const ModelConfig qwen2 = read(sizes + R"("model_type": "qwen2"})");
  EXPECT_TRUE(qwen2.attention_bias);
  EXPECT_THAT(qwen2.stop_token_ids, IsEmpty());

  EXPECT_EQ(read(sizes + R"("model_type": "qwen3"})").head_dim, 128);
  EXPECT_EQ(read(sizes + R"("model_type": "qwen3", "head_dim": null})").head_dim, 16);

  const ModelConfig glm = read(sizes + R"("model_type": "glm"})");
  EXPECT_EQ(glm.head_dim, 128);
  EXPECT_EQ(glm.rope.rotary_dim, 64);
  EXPECT_EQ(glm.rms_norm_eps, 1.5625e-07);
  EXPECT_TRUE(glm.attention_bias);
  EXPECT_FALSE(glm.attention_output_bias);
  EXPECT_THAT(glm.stop_token_ids, IsEmpty());  // its defaults are not in this vocabulary

  const ModelConfig internlm2 = read(sizes + R"("model_type": "internlm2"})");
  EXPECT_TRUE(internlm2.attention_bias);
  EXPECT_TRUE(internlm2.attention_output_bias);
}

TEST(ReadConfig, BiasesGoWhereTheFamilyPutsThem) {
  const ModelConfig plain = read(llama_3_1_8b);
  const ModelConfig llama =
      read(with(llama_3_1_8b, R"({"attention_bias": true, "mlp_bias": true})"));
  EXPECT_TRUE(llama.attention_bias && llama.attention_output_bias && llama.mlp_bias);
  // q 4096, k and v 1024 each, o 4096; gate and up 14336 each, down 4096; 32 layers
  EXPECT_EQ(llama.parameters() - plain.parameters(), 32 * (4096 + 2048 + 4096 + 2 * 14336 + 4096));

  const ModelConfig qwen3 = read(with(qwen3_8b, R"({"attention_bias": true})"));
  EXPECT_TRUE(qwen3.attention_bias && qwen3.attention_output_bias);
  const ModelConfig glm = read(with(glm_4_9b, R"({"attention_bias": false})"));
  EXPECT_FALSE(glm.attention_bias || glm.attention_output_bias);
}

TEST(ReadConfig, CountsTiedEmbeddingsOnce) {
  const ModelConfig tied = read(with(qwen3_8b, R"({"tie_word_embeddings": true})"));
  EXPECT_EQ(tied.parameters(), 8'190'735'360 - int64_t{151936} * 4096);
}

TEST(ReadConfig, WindowsByLayer) {
  const std::string four = with(
      qwen2_5_7b, R"({"num_hidden_layers": 4, "use_sliding_window": true, "sliding_window": 512})");
  EXPECT_THAT(read(with(four, R"({"max_window_layers": 3})")).windows(), ElementsAre(0, 0, 0, 512));
  EXPECT_THAT(read(with(four, R"({"max_window_layers": null})")).windows(), Each(0));  // from 28 on
  EXPECT_THAT(read(with(four, R"({"layer_types": ["sliding_attention", "full_attention",
                                  "sliding_attention", "full_attention"]})"))
                  .windows(),
              ElementsAre(512, 0, 512, 0));
}

TEST(ReadConfig, StopTokensComeFromTheGenerationConfigFirst) {
  EXPECT_THAT(read(llama_3_1_8b, R"({"eos_token_id": [128001, 128008, 128009]})").stop_token_ids,
              ElementsAre(128001, 128008, 128009));
  EXPECT_THAT(read(llama_3_1_8b, R"({"eos_token_id": 7})").stop_token_ids, ElementsAre(7));
  EXPECT_THAT(read(llama_3_1_8b, R"({"temperature": 0.6})").stop_token_ids, ElementsAre(128001));
}

TEST(ReadConfig, Yarn) {
  const ModelConfig config = read(with(qwen3_8b, R"({"rope_scaling": {"rope_type": "yarn",
      "factor": 4.0, "original_max_position_embeddings": 32768}})"));
  EXPECT_EQ(config.rope.scaling, RopeScaling::yarn);
  EXPECT_EQ(config.rope.factor, 4.0);
  EXPECT_EQ(config.rope.original_max_positions, 32768);
  EXPECT_EQ(config.max_positions, 131072);
  EXPECT_EQ(config.rope.beta_fast, 32.0);
  EXPECT_EQ(config.rope.beta_slow, 1.0);
  EXPECT_TRUE(config.rope.truncate);

  const ModelConfig full = read(with(qwen3_8b, R"({"rope_theta": null, "rope_parameters": {
      "rope_type": "yarn", "rope_theta": 5e6, "factor": 2, "attention_factor": 1.5, "beta_fast": 16,
      "beta_slow": 2, "mscale": 0.5, "mscale_all_dim": 0, "truncate": false}})"));
  EXPECT_EQ(full.rope.theta, 5e6);
  EXPECT_EQ(full.rope.original_max_positions, 40960);
  EXPECT_EQ(full.max_positions, 81920);
  EXPECT_EQ(full.rope.attention_factor, 1.5);
  EXPECT_EQ(full.rope.beta_fast, 16.0);
  EXPECT_EQ(full.rope.beta_slow, 2.0);
  EXPECT_EQ(full.rope.mscale, 0.5);
  EXPECT_EQ(full.rope.mscale_all_dim, std::nullopt);
  EXPECT_FALSE(full.rope.truncate);

  const ModelConfig by_ratio = read(with(qwen3_8b, R"({"rope_scaling": {"type": "yarn",
      "factor": null, "original_max_position_embeddings": 10240}})"));
  EXPECT_EQ(by_ratio.rope.factor, 4.0);
  EXPECT_EQ(by_ratio.max_positions, 40960);
}

TEST(ReadConfig, DualChunkAttentionLimitsTheLengthToItsFirstChunk) {
  const ModelConfig config = read(with(qwen2_5_7b, R"({"max_position_embeddings": 1010000,
      "dual_chunk_attention_config": {"chunk_size": 262144, "local_size": 8192,
                                      "original_max_position_embeddings": 262144}})"));
  EXPECT_EQ(config.max_positions, 253952);
}

TEST(ExtendContext, MultipliesTheModelsLength) {
  for (const RopeScaling kind : {RopeScaling::linear, RopeScaling::dynamic, RopeScaling::yarn}) {
    ModelConfig config = read(mistral_7b);
    extend_context(config, kind, 2.5);
    EXPECT_EQ(config.rope.scaling, kind);
    EXPECT_EQ(config.rope.factor, 2.5);
    EXPECT_EQ(config.rope.original_max_positions, 32768);
    EXPECT_EQ(config.max_positions, 81920);
  }
}

TEST(ExtendContext, RefusesWhatCannotBe) {
  ModelConfig plain = read(mistral_7b);
  EXPECT_THROW(extend_context(plain, RopeScaling::llama3, 2.0), InputError);
  EXPECT_THROW(extend_context(plain, RopeScaling::yarn, 1.0), InputError);
  EXPECT_THROW(extend_context(plain, RopeScaling::yarn, NAN), InputError);
  EXPECT_EQ(plain.max_positions, 32768);
  ModelConfig scaled = read(llama_3_1_8b);
  EXPECT_THROW(extend_context(scaled, RopeScaling::yarn, 2.0), InputError);
}

struct Refusal {
  std::string config;
  std::string patch;
  std::vector<std::string> words;  ///< the message has all of them
};

class EveryRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(EveryRefusal, NamesFileKeyAndValue) {
  const Refusal& refusal = GetParam();
  const std::string message = error_of(with(refusal.config, refusal.patch));
  EXPECT_THAT(message, HasSubstr("config.json"));
  for (const std::string& word : refusal.words) EXPECT_THAT(message, HasSubstr(word));
}

INSTANTIATE_TEST_SUITE_P(
    Architectures, EveryRefusal,
    testing::Values(
        Refusal{llama_3_1_8b, R"({"model_type": null})", {"model_type", "missing"}},
        Refusal{llama_3_1_8b, R"({"model_type": "mamba"})", {"mamba", "llama, mistral, ministral"}},
        Refusal{qwen3_8b, R"({"model_type": "qwen2_audio"})", {"qwen3_moe", "internlm2"}},
        Refusal{llama_3_1_8b,
                R"({"architectures": ["LlamaForSequenceClassification"]})",
                {"architectures", "LlamaForSequenceClassification", "LlamaForCausalLM"}}));

INSTANTIATE_TEST_SUITE_P(
    Options, EveryRefusal,
    testing::Values(
        Refusal{llama_3_1_8b,
                R"({"quantization_config": {"quant_method": "hqq"}})",
                {"quantization_config.quant_method", "hqq", "awq"}},
        Refusal{llama_3_1_8b, R"({"hidden_act": "gelu"})", {"hidden_act", "gelu", "silu"}},
        Refusal{llama_3_1_8b, R"({"hidden_activation": "relu"})", {"hidden_activation", "relu"}},
        Refusal{
            llama_3_1_8b, R"({"attn_logit_softcapping": 50.0})", {"attn_logit_softcapping", "50"}},
        Refusal{llama_3_1_8b, R"({"final_logit_softcapping": 30.0})", {"final_logit_softcapping"}},
        Refusal{llama_3_1_8b, R"({"num_experts": 8})", {"num_experts", "8", "mixture of experts"}},
        Refusal{llama_3_1_8b, R"({"num_local_experts": 8})", {"num_local_experts"}},
        Refusal{llama_3_1_8b, R"({"logits_scaling": 16})", {"logits_scaling", "16"}},
        Refusal{llama_3_1_8b, R"({"sliding_window": 4096})", {"sliding_window", "4096", "llama"}},
        Refusal{
            llama_3_1_8b, R"({"partial_rotary_factor": 0.5})", {"partial_rotary_factor", "0.5"}}));

INSTANTIATE_TEST_SUITE_P(
    Rope, EveryRefusal,
    testing::Values(
        Refusal{
            qwen3_8b, R"({"rope_scaling": {"type": "ntk", "factor": 4}})", {"rope_scaling.type"}},
        Refusal{qwen3_8b,
                R"({"rope_parameters": {"rope_type": "mrope"}})",
                {"rope_parameters.rope_type", "mrope"}},
        Refusal{qwen3_8b,
                R"({"rope_scaling": {"type": "linear"}})",
                {"rope_scaling.factor", "missing"}},
        Refusal{qwen3_8b,
                R"({"rope_scaling": {"type": "linear", "factor": 0.5}})",
                {"rope_scaling.factor", "0.5"}},
        Refusal{qwen3_8b,
                R"({"rope_scaling": {"type": "linear", "factor": 2, "alpha": 3}})",
                {"rope_scaling.alpha", "3"}},
        Refusal{qwen3_8b,
                R"({"rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 2}})",
                {"linear", "yarn"}},
        Refusal{qwen3_8b,
                R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})",
                {"full_attention"}},
        Refusal{qwen3_8b,
                R"({"rope_parameters": {"rope_theta": 10000}})",
                {"rope_theta", "1000000", "10000"}},
        Refusal{qwen3_8b, R"({"rope_scaling": "linear"})", {"rope_scaling", "linear", "object"}},
        Refusal{qwen3_8b, R"({"rope_theta": 1})", {"rope_theta"}},
        Refusal{
            qwen3_8b, R"({"rope_scaling": {"type": "yarn"}})", {"rope_scaling.factor", "missing"}},
        Refusal{
            qwen3_8b,
            R"({"rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 2}})",
            {"beta_fast"}},
        Refusal{llama_3_1_8b,
                R"({"rope_scaling": {"low_freq_factor": null}})",
                {"rope_scaling.low_freq_factor", "missing"}},
        Refusal{llama_3_1_8b,
                R"({"rope_scaling": {"high_freq_factor": 0.5}})",
                {"high_freq_factor", "0.5"}},
        Refusal{llama_3_1_8b,
                R"({"rope_scaling": {"original_max_position_embeddings": null}})",
                {"original_max_position_embeddings", "missing"}},
        Refusal{glm_4_9b, R"({"partial_rotary_factor": 0.01})", {"partial_rotary_factor"}}));

INSTANTIATE_TEST_SUITE_P(
    Sizes, EveryRefusal,
    testing::Values(
        Refusal{llama_3_1_8b, R"({"vocab_size": null})", {"vocab_size", "missing"}},
        Refusal{llama_3_1_8b,
                R"({"max_position_embeddings": null})",
                {"max_position_embeddings", "missing"}},
        Refusal{llama_3_1_8b, R"({"hidden_size": 0})", {"hidden_size is 0"}},
        Refusal{llama_3_1_8b, R"({"hidden_size": -64})", {"hidden_size is -64"}},
        Refusal{llama_3_1_8b, R"({"hidden_size": "4096"})", {"hidden_size", "\"4096\"", "integer"}},
        Refusal{llama_3_1_8b,
                R"({"hidden_size": 9223372036854775807})",
                {"hidden_size", "9223372036854775807"}},
        Refusal{llama_3_1_8b,
                R"({"vocab_size": 18446744073709551615})",
                {"vocab_size", "18446744073709551615"}},
        Refusal{
            llama_3_1_8b, R"({"num_hidden_layers": 1000000})", {"num_hidden_layers", "1000000"}},
        Refusal{llama_3_1_8b, R"({"num_key_value_heads": 5})", {"num_attention_heads is 32", "5"}},
        Refusal{llama_3_1_8b, R"({"hidden_size": 4100})", {"hidden_size is 4100", "32"}},
        Refusal{llama_3_1_8b, R"({"head_dim": 127})", {"127", "head_dim"}},
        Refusal{llama_3_1_8b, R"({"rms_norm_eps": -1.0})", {"rms_norm_eps", "-1.0"}},
        Refusal{llama_3_1_8b, R"({"attention_bias": 1})", {"attention_bias is 1", "true or false"}},
        Refusal{llama_3_1_8b, R"({"eos_token_id": 128256})", {"eos_token_id is 128256"}},
        Refusal{llama_3_1_8b, R"({"eos_token_id": [1, -1]})", {"eos_token_id is [1,-1]"}}));

INSTANTIATE_TEST_SUITE_P(
    Layers, EveryRefusal,
    testing::Values(
        Refusal{qwen3_8b, R"({"layer_types": ["full_attention"]})", {"layer_types", "36"}},
        Refusal{qwen3_8b,
                R"({"num_hidden_layers": 1, "layer_types": ["linear_attention"]})",
                {"layer_types", "linear_attention"}},
        Refusal{qwen3_8b,
                R"({"num_hidden_layers": 1, "layer_types": ["sliding_attention"]})",
                {"layer_types", "sliding_window"}},
        Refusal{mistral_7b,
                R"({"num_hidden_layers": 1, "layer_types": ["full_attention"]})",
                {"layer_types", "one window"}}));

TEST(ReadConfig, RefusesAGenerationConfigWithForeignTokens) {
  const std::string message = error_of(llama_3_1_8b, R"({"eos_token_id": 200000})");
  EXPECT_THAT(message, HasSubstr("generation_config.json: eos_token_id is 200000"));
}

TEST(ReadConfig, RefusesWhatIsNoConfiguration) {
  EXPECT_THAT(error_of("{\"model_type\": "), HasSubstr("its JSON cannot be read"));
  EXPECT_THAT(error_of("[1, 2]"), HasSubstr("JSON array, not an object"));
  const test::TempFolder empty;
  EXPECT_THROW(read_config(empty.path()), InputError);
}

TEST(ReadConfig, AcceptsOptionsThatChangeNothing) {
  EXPECT_EQ(read(with(llama_3_1_8b, R"({"pretraining_tp": 2, "hidden_act": "swish",
      "num_experts": 0, "logits_scaling": 1.0, "sliding_window": 131072, "partial_rotary_factor": 1.0})"))
                .parameters(),
            8'030'261'248);
}

}  // namespace
}  // namespace pecia::model
