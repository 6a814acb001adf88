// SPDX-License-Identifier: Apache-2.0
/// What configurations of families with latent attention say, and what they may not say.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/base/core/error.hpp"
#include "lib/model/config/config.hpp"

namespace pecia::model {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// `keys` are added, and null stays null.
ModelConfig latent(const std::string& type, const std::string& keys = "{}") {
  json config = {{"model_type", type},          {"vocab_size", 100},
                 {"hidden_size", 64},           {"intermediate_size", 96},
                 {"moe_intermediate_size", 40}, {"num_hidden_layers", 5},
                 {"num_attention_heads", 4},    {"max_position_embeddings", 8192}};
  config.update(json::parse(keys));
  return parse_config(config.dump(), "config.json");
}

std::vector<int64_t> sizes_of(const ModelConfig& config) {
  const LatentConfig& sizes = config.latent.value();
  return {sizes.q_rank, sizes.kv_rank, sizes.nope_dim, sizes.rope_dim, sizes.value_dim};
}

std::vector<int64_t> dense_layers(const ModelConfig& config) {
  std::vector<int64_t> found;
  for (int64_t layer = 0; layer < config.layers; ++layer)
    if (config.feed_forward(layer) == FeedForward::dense) found.push_back(layer);
  return found;
}

TEST(DeepseekV3, TakesTransformersDefaults) {
  const ModelConfig config = latent("deepseek_v3");
  EXPECT_EQ(sizes_of(config), (std::vector<int64_t>{1536, 512, 128, 64, 128}));
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 1);  // one row of a token for all heads
  EXPECT_EQ(config.head_dim, 576);
  EXPECT_EQ(config.values_in_keys(), 512);
  EXPECT_EQ(config.kv_bytes_per_token(DType::bf16), 5 * 576 * 2);
  EXPECT_EQ(config.rope.rotary_dim, 64);
  EXPECT_EQ(config.rope.pairs, kernels::RopePairs::interleaved);
  EXPECT_FLOAT_EQ(*config.attention_scale, static_cast<float>(1 / std::sqrt(192)));
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.experts->count, 256);
  EXPECT_EQ(config.experts->per_token, 8);
  EXPECT_EQ(config.experts->sigmoid.groups, 8);
  EXPECT_EQ(config.experts->sigmoid.kept_groups, 4);
  EXPECT_EQ(config.experts->sigmoid.scale, 2.5f);
  EXPECT_TRUE(config.experts->sigmoid.normed);
  EXPECT_EQ(dense_layers(config), (std::vector<int64_t>{0, 1, 2}));
}

TEST(DeepseekV3, MayHaveQueriesWithoutLatents) {
  EXPECT_EQ(latent("deepseek_v3", R"({"q_lora_rank": null})").latent->q_rank, 0);
  EXPECT_EQ(latent("deepseek_v3", R"({"q_lora_rank": 24})").latent->q_rank, 24);
}

TEST(DeepseekV3, IsAlsoKimiK2) {
  const ModelConfig config =
      latent("kimi_k2", R"({"architectures": ["DeepseekV3ForCausalLM"], "n_group": 1,
                            "topk_group": 1, "n_routed_experts": 384, "num_attention_heads": 64,
                            "head_dim": 112})");
  EXPECT_EQ(config.family, Family::deepseek_v3);
  EXPECT_EQ(config.experts->count, 384);
  EXPECT_EQ(config.experts->sigmoid.groups, 1);
}

/// Scores by the square of one mscale, cos and sin by the ratio of both (Rotary).
TEST(DeepseekV3, ScalesScoresByTheSquareOfMscaleAllDim) {
  const std::string yarn = R"({"rope_scaling": {"type": "yarn", "factor": 8.0,
      "original_max_position_embeddings": 256, "mscale": 1.0, "mscale_all_dim": )";
  const auto scale = [&](const std::string& all) {
    return *latent("deepseek_v3", yarn + all + "}}").attention_scale * std::sqrt(192.0);
  };
  EXPECT_NEAR(scale("0.8"), std::pow(0.08 * std::log(8) + 1, 2), 1e-6);
  EXPECT_NEAR(scale("0"), 1, 1e-6);
}

TEST(Glm4MoeLite, ListsItsDenseLayers) {
  const ModelConfig config = latent("glm4_moe_lite");
  EXPECT_EQ(sizes_of(config), (std::vector<int64_t>{768, 512, 192, 64, 256}));
  EXPECT_EQ(config.experts->sigmoid.scale, 1.8f);
  EXPECT_EQ(config.experts->sigmoid.groups, 1);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(dense_layers(config), (std::vector<int64_t>{0}));
  EXPECT_EQ(dense_layers(latent("glm4_moe_lite", R"({"first_k_dense_replace": 3,
      "mlp_layer_types": ["dense", "sparse", "sparse", "dense", "sparse"]})")),
            (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(latent("glm4_moe_lite", R"({"rope_interleave": false})").rope.pairs,
            kernels::RopePairs::halves);
}

TEST(Mistral4, ScalesQueriesByTheirPositionAndTakesProbabilities) {
  const std::string rope = R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4,
      "factor": 128.0, "original_max_position_embeddings": 8192, "mscale": 1.0,
      "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1, "partial_rotary_factor": 0.5}})";
  const ModelConfig config = latent("mistral4", rope);
  EXPECT_EQ(sizes_of(config), (std::vector<int64_t>{1024, 256, 64, 64, 128}));
  EXPECT_EQ(config.rope.temperature_beta, 0.1);
  EXPECT_EQ(config.rope.rotary_dim, 64);
  EXPECT_EQ(config.max_positions, 128 * 8192);
  EXPECT_EQ(config.experts->routing, kernels::Routing::of_chosen);
  EXPECT_FALSE(config.experts->choice_bias);
  EXPECT_TRUE(dense_layers(config).empty());
}

struct BrokenLatents : testing::TestWithParam<std::array<const char*, 3>> {};

TEST_P(BrokenLatents, AreRefusedByTheKeysName) {
  const auto& [type, keys, key] = GetParam();
  try {
    latent(type, keys);
    FAIL() << "accepted " << keys;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(key));
  }
}

INSTANTIATE_TEST_SUITE_P(
    EachKey, BrokenLatents,
    testing::Values(
        std::array{"deepseek_v3", R"({"num_key_value_heads": 2})", "num_key_value_heads"},
        std::array{"deepseek_v3", R"({"qk_rope_head_dim": 7})", "qk_rope_head_dim"},
        std::array{"deepseek_v3", R"({"kv_lora_rank": 511})", "kv_lora_rank"},
        std::array{"deepseek_v3", R"({"kv_lora_rank": 4096})", "kv_lora_rank"},
        std::array{"deepseek_v3", R"({"q_lora_rank": 0})", "q_lora_rank"},
        std::array{"deepseek_v3", R"({"moe_layer_freq": 2})", "moe_layer_freq"},
        std::array{"deepseek_v3", R"({"scoring_func": "softmax"})", "scoring_func"},
        std::array{"glm4_moe_lite", R"({"mlp_layer_types": ["dense"]})", "mlp_layer_types"},
        std::array{"glm4_moe_lite",
                   R"({"mlp_layer_types": ["dense", "sparse", "mamba", "dense", "sparse"]})",
                   "mamba"},
        std::array{"mistral4", "{}", "rope_scaling"},
        std::array{"mistral4",
                   R"({"rope_parameters": {"rope_type": "yarn", "factor": 4.0,
                       "original_max_position_embeddings": 64}})",
                   "llama_4_scaling_beta"},
        std::array{"llama", R"({"moe_intermediate_size": null, "kv_lora_rank": 16})",
                   "latent attention"}));

}  // namespace
}  // namespace pecia::model
