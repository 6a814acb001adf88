// SPDX-License-Identifier: Apache-2.0
/// What configurations of Llama 4 say, whose layers attend in chunks, and what they may not say.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lib/base/core/error.hpp"
#include "lib/model/config/config.hpp"

namespace pecia::model {
namespace {

using kernels::Window;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

/// `keys` are added, and null stays null.
ModelConfig llama4(const std::string& keys = "{}") {
  json config = {{"model_type", "llama4_text"}, {"vocab_size", 100},
                 {"hidden_size", 64},           {"intermediate_size", 96},
                 {"num_hidden_layers", 5},      {"num_attention_heads", 4},
                 {"num_key_value_heads", 2}};
  config.update(json::parse(keys));
  return parse_config(config.dump(), "config.json");
}

std::vector<int64_t> dense_layers(const ModelConfig& config) {
  std::vector<int64_t> found;
  for (int64_t layer = 0; layer < config.layers; ++layer)
    if (config.feed_forward(layer) == FeedForward::dense) found.push_back(layer);
  return found;
}

std::vector<int> rotated(const ModelConfig& config) {
  std::vector<int> found;
  for (const LayerConfig& layer : config.pattern)
    found.push_back(layer.rotation == Rotation::main ? 1 : 0);
  return found;
}

TEST(Llama4, TakesTransformersDefaults) {
  const ModelConfig config = llama4();
  const Window chunks = Window::chunks_of(8192), none;
  EXPECT_THAT(config.windows(), ElementsAre(chunks, chunks, chunks, none, chunks));
  EXPECT_THAT(rotated(config), ElementsAre(1, 1, 1, 0, 1));
  EXPECT_EQ(config.widest_window(), chunks);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.rope.theta, 5e5);
  EXPECT_EQ(config.rope.rotary_dim, 128);
  EXPECT_EQ(config.rope.pairs, kernels::RopePairs::interleaved);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.qk_norm, QkNorm::rotated_heads);
  EXPECT_TRUE(config.norms_without_weights(0));
  EXPECT_FALSE(config.norms_without_weights(3));
  EXPECT_EQ(config.unrotated_temperature->scale, 0.1);
  EXPECT_EQ(config.unrotated_temperature->floor, 8192);
  EXPECT_TRUE(dense_layers(config).empty());
  EXPECT_EQ(config.ffn, 16384);
  EXPECT_EQ(config.experts->count, 16);
  EXPECT_EQ(config.experts->per_token, 1);
  EXPECT_EQ(config.experts->ffn, 96);
  EXPECT_EQ(config.experts->shared_ffn, 96);
  EXPECT_EQ(config.experts->weighed, kernels::Weighed::inputs);
  EXPECT_TRUE(config.experts->sigmoid.by_logits);
  EXPECT_FALSE(config.experts->sigmoid.normed);
  EXPECT_FALSE(config.experts->choice_bias);
}

TEST(Llama4, ReadsListsOfLayers) {
  const ModelConfig config = llama4(R"({"no_rope_layers": [1, 0, 1, 0, 1], "moe_layers": [1, 4],
      "attention_chunk_size": 32, "layer_types": ["full_attention", "full_attention",
      "chunked_attention", "chunked_attention", "full_attention"]})");
  const Window chunks = Window::chunks_of(32), none;
  EXPECT_THAT(config.windows(), ElementsAre(none, none, chunks, chunks, none));
  EXPECT_THAT(rotated(config), ElementsAre(1, 0, 1, 0, 1));
  EXPECT_THAT(dense_layers(config), ElementsAre(0, 2, 3));
  EXPECT_THAT(rotated(llama4(R"({"no_rope_layers": []})")), ElementsAre(1, 1, 1, 0, 1));
  EXPECT_THAT(rotated(llama4(R"({"no_rope_layer_interval": 2})")), ElementsAre(1, 0, 1, 0, 1));
  EXPECT_THAT(dense_layers(llama4(R"({"interleave_moe_layer_step": 2})")), ElementsAre(0, 2, 4));
}

TEST(Llama4, HasATemperatureUnlessItIsTurnedOff) {
  for (const char* keys : {R"({"attn_temperature_tuning": true})",
                           R"({"attn_temperature_tuning": 4, "floor_scale": 7})"})
    EXPECT_TRUE(llama4(keys).unrotated_temperature.has_value()) << keys;
  for (const char* keys :
       {R"({"attn_temperature_tuning": false})", R"({"attn_temperature_tuning": 0})"})
    EXPECT_FALSE(llama4(keys).unrotated_temperature.has_value()) << keys;
  EXPECT_EQ(llama4(R"({"use_qk_norm": false})").qk_norm, QkNorm::none);
}

TEST(Llama4, IsReadFromTheTextPartOfAModelThatReadsImages) {
  const json text = {{"model_type", "llama4_text"}, {"vocab_size", 100},
                     {"hidden_size", 64},           {"intermediate_size", 96},
                     {"num_hidden_layers", 2},      {"num_attention_heads", 4},
                     {"num_key_value_heads", 2}};
  const json whole = {{"model_type", "llama4"},
                      {"architectures", {"Llama4ForConditionalGeneration"}},
                      {"tie_word_embeddings", false},
                      {"text_config", text}};
  const ModelConfig config = parse_config(whole.dump(), "config.json");
  EXPECT_EQ(config.family, Family::llama4_text);
  EXPECT_FALSE(config.tied_embeddings);
}

/// A norm after the rotation takes away what yarn multiplies cos and sin by.
TEST(Llama4, HasNoFactorOfCosAndSinThatTheNormWouldTakeAway) {
  ModelConfig config = llama4();
  extend_context(config, RopeScaling::yarn, 4);
  EXPECT_EQ(config.rope.attention_factor, 1);
}

struct BrokenChunks : testing::TestWithParam<std::array<const char*, 2>> {};

TEST_P(BrokenChunks, AreRefusedByTheKeysName) {
  const auto& [keys, key] = GetParam();
  try {
    llama4(keys);
    FAIL() << "accepted " << keys;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(key));
  }
}

INSTANTIATE_TEST_SUITE_P(
    EachKey, BrokenChunks,
    testing::Values(std::array{R"({"attention_chunk_size": null})", "attention_chunk_size"},
                    std::array{R"({"attention_chunk_size": 0})", "attention_chunk_size"},
                    std::array{R"({"no_rope_layers": [1, 0]})", "no_rope_layers"},
                    std::array{R"({"layer_types": ["chunked_attention"]})", "layer_types"},
                    std::array{R"({"layer_types": ["chunked_attention", "sliding_attention",
                        "full_attention", "full_attention", "full_attention"]})",
                               "sliding_attention"},
                    std::array{R"({"moe_layers": [5]})", "moe_layers"},
                    std::array{R"({"interleave_moe_layer_step": 0})", "interleave_moe_layer_step"},
                    std::array{R"({"floor_scale": 0})", "floor_scale"},
                    std::array{R"({"attn_temperature_tuning": "on"})", "attn_temperature_tuning"},
                    std::array{R"({"sliding_window": 64})", "sliding_window"},
                    std::array{R"({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
                        "activation_scheme": "dynamic", "weight_block_size": [128, 128]}})",
                               "quantization_config"}));

}  // namespace
}  // namespace pecia::model
