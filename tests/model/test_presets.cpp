// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>

#include "lib/base/core/error.hpp"
#include "lib/model/config/presets.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::model {
namespace {

using testing::HasSubstr;

/// 1e9 parameters, as the models' makers say.
TEST(ModelPresets, HaveAsManyParametersAsTheirNamesSay) {
  const std::map<std::string, double> billions{{"llama-2-7b", 6.74},
                                               {"llama-3-8b", 8.03},
                                               {"llama-3.1-8b", 8.03},
                                               {"llama-3-70b", 70.6},
                                               {"llama-3.1-70b", 70.6},
                                               {"llama-3.3-70b", 70.6},
                                               {"llama-3-405b", 406},
                                               {"llama-3.1-405b", 406},
                                               {"qwen2.5-32b", 32.8},
                                               {"glm-4-9b-1m", 9.48},
                                               {"internlm2.5-7b-1m", 7.74},
                                               {"smollm2-135m", 0.1345},
                                               {"qwen3-30b-a3b", 30.5},
                                               {"qwen3-235b-a22b", 235},
                                               {"mixtral-8x7b", 46.7},
                                               {"gpt-oss-20b", 20.9},
                                               {"gpt-oss-120b", 116.8},
                                               {"gemma-3-12b", 11.77},
                                               {"gemma-3-27b", 27.0},
                                               {"glm-4.5-air", 106.85},
                                               {"minimax-m2", 228.7},
                                               {"deepseek-v3", 671},
                                               {"glm-4.7-flash", 29.94},
                                               {"mistral-small-4", 119},
                                               {"gemma-4-31b", 30.7},
                                               {"gemma-4-26b-a4b", 25.2},
                                               {"gemma-4-e4b", 7.47},
                                               {"qwen3-next-80b-a3b", 79.7},
                                               {"qwen3.5-9b", 8.95},
                                               {"qwen3.5-27b", 26.9},
                                               {"granite-4.0-h-tiny", 6.94},
                                               {"nemotron-3-nano-30b-a3b", 31.6},
                                               // 109 and 402 with the parts that read images.
                                               {"llama-4-scout", 107.8},
                                               {"llama-4-maverick", 400.7}};
  EXPECT_EQ(model_presets().size(), billions.size());
  for (const std::string& name : model_presets()) {
    const ModelConfig config = config_of_preset_or_folder(name);
    EXPECT_NEAR(static_cast<double>(config.parameters()) / 1e9 / billions.at(name), 1, 0.005)
        << name;
    EXPECT_EQ(config.stored_dtype, DType::bf16);
    EXPECT_FALSE(config.stop_token_ids.empty());
  }
  const auto active = [](const char* name) {
    return static_cast<double>(config_of_preset_or_folder(name).active_parameters()) / 1e9;
  };
  EXPECT_NEAR(active("qwen3-30b-a3b") / 3.3, 1, 0.02);
  EXPECT_NEAR(active("qwen3-235b-a22b") / 22, 1, 0.02);
  EXPECT_NEAR(active("mixtral-8x7b") / 12.9, 1, 0.005);
  EXPECT_NEAR(active("llama-4-scout") / 17, 1, 0.02);
  EXPECT_NEAR(active("llama-4-maverick") / 17, 1, 0.02);
  // 12 and 10 as published, which leave out embedding and head of 1.24 and 1.23.
  EXPECT_NEAR(active("glm-4.5-air") / (12.1 + 1.24), 1, 0.01);
  EXPECT_NEAR(active("minimax-m2") / (9.8 + 1.23), 1, 0.01);
  EXPECT_NEAR(active("deepseek-v3") / (37 + 0.93), 1, 0.01);  // 37 without the embedding
  EXPECT_NEAR(active("gemma-4-26b-a4b") / 3.8, 1, 0.01);
  // 3.6 and 5.1 as published, which leave out the embedding of 0.58.
  EXPECT_NEAR(active("gpt-oss-20b") / (3.61 + 0.58), 1, 0.005);
  EXPECT_NEAR(active("gpt-oss-120b") / (5.13 + 0.58), 1, 0.005);
  EXPECT_GE(config_of_preset_or_folder("glm-4-9b-1m").max_positions, 1'000'000);
}

/// Counted by hand from shapes of tensors. Files with a layer for drafts hold more.
TEST(ModelPresets, OfSigmoidRoutersCountEveryTensor) {
  const int64_t hidden = 4096, expert = 3 * hidden * 1408, heads = (2 * 96 + 2 * 8) * 128;
  const int64_t biases = (96 + 2 * 8) * 128;
  EXPECT_EQ(config_of_preset_or_folder("glm-4.5-air").parameters(),
            46 * (hidden * heads + biases + 2 * hidden) + 3 * hidden * 10944 +
                45 * (129 * expert + 128 * hidden + 128) + hidden + 2 * 151552 * hidden);
  const int64_t width = 3072, of_heads = (2 * 48 + 2 * 8) * 128, norms = (48 + 8) * 128;
  EXPECT_EQ(
      config_of_preset_or_folder("minimax-m2").parameters(),
      62 * (width * of_heads + norms + 2 * width + 256 * 3 * width * 1536 + 256 * width + 256) +
          width + 2 * 200064 * width);
  // A token meets 8 experts and the shared one, and its row of the embedding is looked up.
  EXPECT_EQ(config_of_preset_or_folder("glm-4.5-air").flops_per_token(),
            2.0 * (46 * hidden * heads + 3 * hidden * 10944 + 45 * (9 * expert + 128 * hidden) +
                   151552 * hidden));
}

/// DeepSeek-V3, counted by hand. Its cache has 576 numbers of a token and layer, where 8 KV heads of
/// 128 with keys and values have 2048.
TEST(ModelPresets, OfLatentAttentionCountEveryTensorAndWhatTokensKeep) {
  const int64_t hidden = 7168, heads = 128, expert = 3 * hidden * 2048;
  const int64_t attention = hidden * 1536 + 1536 + 1536 * heads * 192 + hidden * 576 + 512 +
                            512 * heads * 256 + heads * 128 * hidden;
  const ModelConfig config = config_of_preset_or_folder("deepseek-v3");
  EXPECT_EQ(config.parameters(), 61 * (attention + 2 * hidden) + 3 * 3 * hidden * 18432 +
                                     58 * (257 * expert + 256 * hidden + 256) + hidden +
                                     2 * 129280 * hidden);
  EXPECT_EQ(config.kv_bytes_per_token(DType::bf16), 61 * 576 * 2);
  EXPECT_EQ(config.kv_bytes_per_token(DType::fp8), 61 * (576 + 4));
  EXPECT_EQ(config.attention_flops_per_pair(), 2.0 * 61 * heads * (576 + 512));
  ModelConfig of_heads = config_of_preset_or_folder("llama-3-8b");
  EXPECT_EQ(of_heads.kv_bytes_per_token(DType::bf16) / of_heads.layers, 2 * 8 * 128 * 2);
  // m² of yarn: 0.1 · ln(40) + 1 squared.
  EXPECT_NEAR(*config.attention_scale, std::pow(0.1 * std::log(40) + 1, 2) / std::sqrt(192), 1e-7);
}

std::string refusal_of_preset(const std::string& name) {
  try {
    config_of_preset_or_folder(name);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

/// Lengths and scaling as the models' config.json says.
TEST(ModelPresets, OfLlama3AndItsSuccessorsReadWhatTheseRead) {
  for (const char* name : {"llama-3-8b", "llama-3-70b"}) {
    const ModelConfig config = config_of_preset_or_folder(name);
    EXPECT_EQ(config.max_positions, 8192) << name;
    EXPECT_EQ(config.rope.scaling, RopeScaling::none) << name;
  }
  for (const char* name :
       {"llama-3.1-8b", "llama-3.1-70b", "llama-3.3-70b", "llama-3.1-405b", "llama-3-405b"}) {
    const ModelConfig config = config_of_preset_or_folder(name);
    EXPECT_EQ(config.max_positions, 131072) << name;
    EXPECT_EQ(config.rope.scaling, RopeScaling::llama3) << name;
    EXPECT_EQ(config.rope.factor, 8) << name;
    EXPECT_EQ(config.rope.original_max_positions, 8192) << name;
    EXPECT_EQ(config.rope.low_freq_factor, 1) << name;
    EXPECT_EQ(config.rope.high_freq_factor, 4) << name;
  }
}

TEST(ModelPresets, ThatDoNotExistAreAnsweredWithThoseThatAreMeant) {
  EXPECT_THAT(refusal_of_preset("llama3-8b"), HasSubstr("did you mean llama-3-8b?"));
  EXPECT_THAT(refusal_of_preset("llama3-70b"), HasSubstr("did you mean llama-3-70b?"));
  EXPECT_THAT(refusal_of_preset("Llama-3.3-70B-Instruct"),
              HasSubstr("did you mean llama-3.3-70b?"));
  EXPECT_THAT(refusal_of_preset("meta-llama/Llama-3.1-8B"),
              HasSubstr("did you mean llama-3.1-8b?"));
  EXPECT_THAT(refusal_of_preset("llama-70b"),
              HasSubstr("did you mean llama-3-70b, llama-3.1-70b or llama-3.3-70b?"));
  EXPECT_THAT(refusal_of_preset("no such folder"), HasSubstr("a preset: llama-2-7b, llama-3-8b"));
  EXPECT_THAT(refusal_of_preset("llama-2-70b"), HasSubstr("a preset: llama-2-7b, llama-3-8b"))
      << "llama-2-7b is spelled nearly alike, and another model";
}

TEST(ModelPresets, GiveWayToFolders) {
  const test::TempFolder folder;
  std::ofstream(folder / "config.json")
      << R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 128,
             "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 100})";
  EXPECT_EQ(config_of_preset_or_folder(folder.path().string()).layers, 2);
  EXPECT_THAT(refusal_of_preset((folder / "config.json").string()), HasSubstr("config.json"));
}

}  // namespace
}  // namespace pecia::model
