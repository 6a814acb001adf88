// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  const std::map<std::string, double> billions{
      {"llama-2-7b", 6.74},    {"llama-3-8b", 8.03},        {"llama-3.1-8b", 8.03},
      {"llama-3-70b", 70.6},   {"llama-3.1-70b", 70.6},     {"llama-3.3-70b", 70.6},
      {"llama-3-405b", 406},   {"llama-3.1-405b", 406},     {"qwen2.5-32b", 32.8},
      {"glm-4-9b-1m", 9.48},   {"internlm2.5-7b-1m", 7.74}, {"smollm2-135m", 0.1345},
      {"qwen3-30b-a3b", 30.5}, {"qwen3-235b-a22b", 235},    {"mixtral-8x7b", 46.7},
      {"gpt-oss-20b", 20.9},   {"gpt-oss-120b", 116.8},     {"gemma-3-12b", 11.77},
      {"gemma-3-27b", 27.0},   {"glm-4.5-air", 106.85},     {"minimax-m2", 228.7}};
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
  // 12 and 10 as published, which leave out embedding and head of 1.24 and 1.23.
  EXPECT_NEAR(active("glm-4.5-air") / (12.1 + 1.24), 1, 0.01);
  EXPECT_NEAR(active("minimax-m2") / (9.8 + 1.23), 1, 0.01);
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

std::string refusal(const std::string& name) {
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
  EXPECT_THAT(refusal("llama3-8b"), HasSubstr("did you mean llama-3-8b?"));
  EXPECT_THAT(refusal("llama3-70b"), HasSubstr("did you mean llama-3-70b?"));
  EXPECT_THAT(refusal("Llama-3.3-70B-Instruct"), HasSubstr("did you mean llama-3.3-70b?"));
  EXPECT_THAT(refusal("meta-llama/Llama-3.1-8B"), HasSubstr("did you mean llama-3.1-8b?"));
  EXPECT_THAT(refusal("llama-70b"),
              HasSubstr("did you mean llama-3-70b, llama-3.1-70b or llama-3.3-70b?"));
  EXPECT_THAT(refusal("no such folder"), HasSubstr("a preset: llama-2-7b, llama-3-8b"));
  EXPECT_THAT(refusal("llama-2-70b"), HasSubstr("a preset: llama-2-7b, llama-3-8b"))
      << "llama-2-7b is spelled nearly alike, and another model";
}

TEST(ModelPresets, GiveWayToFolders) {
  const test::TempFolder folder;
  std::ofstream(folder / "config.json")
      << R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 128,
             "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 100})";
  EXPECT_EQ(config_of_preset_or_folder(folder.path().string()).layers, 2);
  EXPECT_THAT(refusal((folder / "config.json").string()), HasSubstr("config.json"));
}

}  // namespace
}  // namespace pecia::model
