// SPDX-License-Identifier: Apache-2.0
/// What configurations of mixtures of experts say, and what they may not say.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lib/base/core/error.hpp"
#include "lib/model/config/config.hpp"

namespace pecia::model {
namespace {

using kernels::Routing;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig mixture(const std::string& type, const std::string& keys = "{}") {
  json config = {{"model_type", type},       {"vocab_size", 100},
                 {"hidden_size", 64},        {"intermediate_size", 96},
                 {"num_hidden_layers", 4},   {"num_attention_heads", 4},
                 {"num_key_value_heads", 2}, {"max_position_embeddings", 8192}};
  if (type == "qwen3_moe") config["moe_intermediate_size"] = 40;
  config.merge_patch(json::parse(keys));
  return parse_config(config.dump(), "config.json");
}

std::vector<bool> has_experts(const ModelConfig& config) {
  std::vector<bool> found;
  for (const LayerConfig& layer : config.pattern)
    found.push_back(layer.feed_forward == FeedForward::experts);
  return found;
}

TEST(Qwen3Moe, TakesTransformersDefaults) {
  const ModelConfig config = mixture("qwen3_moe");
  EXPECT_EQ(config.experts->count, 128);
  EXPECT_EQ(config.experts->per_token, 8);
  EXPECT_EQ(config.experts->ffn, 40);
  EXPECT_EQ(config.experts->routing, Routing::of_all);
  EXPECT_THAT(has_experts(config), ElementsAre(true, true, true, true));
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.qk_norm, QkNorm::each_head);
  EXPECT_EQ(config.common_ffn(), 40);
}

TEST(Qwen3Moe, HasDenseLayersByStepAndByList) {
  EXPECT_THAT(has_experts(mixture("qwen3_moe", R"({"decoder_sparse_step": 2})")),
              ElementsAre(false, true, false, true));
  const ModelConfig both =
      mixture("qwen3_moe", R"({"decoder_sparse_step": 2, "mlp_only_layers": [3, 0]})");
  EXPECT_THAT(has_experts(both), ElementsAre(false, true, false, false));
  EXPECT_EQ(both.common_ffn(), 8);  // of 96 and 40
  EXPECT_EQ(both.num_layers(FeedForward::dense), 3);
}

TEST(Qwen3Moe, ReadsTheNumberOfExpertsUnderEitherKey) {
  EXPECT_EQ(mixture("qwen3_moe", R"({"num_experts": 16})").experts->count, 16);
  EXPECT_EQ(mixture("qwen3_moe", R"({"num_local_experts": 12})").experts->count, 12);
}

TEST(Qwen3Moe, WeighsByTheChosenOnesWhereNormTopkProbSaysSo) {
  EXPECT_EQ(mixture("qwen3_moe", R"({"norm_topk_prob": true})").experts->routing,
            Routing::of_chosen);
}

TEST(Mixtral, AlwaysWeighsByTheChosenOnesAndHasExpertsEverywhere) {
  const ModelConfig config = mixture("mixtral", R"({"norm_topk_prob": false})");
  EXPECT_EQ(config.experts->count, 8);
  EXPECT_EQ(config.experts->per_token, 2);
  EXPECT_EQ(config.experts->ffn, 96);
  EXPECT_EQ(config.experts->routing, Routing::of_chosen);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_THAT(has_experts(config), ElementsAre(true, true, true, true));
  EXPECT_THAT(mixture("mixtral", R"({"sliding_window": 32})").windows(),
              ElementsAre(32, 32, 32, 32));
}

TEST(Olmoe, NormsAllHeadsTogether) {
  const ModelConfig config = mixture("olmoe", R"({"num_experts": 4, "num_experts_per_tok": 4})");
  EXPECT_EQ(config.qk_norm, QkNorm::all_heads);
  EXPECT_EQ(config.experts->routing, Routing::of_all);
  EXPECT_TRUE(config.norm_before && !config.norm_after);
}

constexpr auto yarn_of_gpt_oss =
    R"({"rope_scaling": {"rope_type": "yarn", "factor": 32.0, "truncate": false,
    "original_max_position_embeddings": 4096}})";

ModelConfig gpt_oss(const std::string& keys = "{}") {
  json all = json::parse(yarn_of_gpt_oss);
  all.merge_patch(json::parse(keys));
  return mixture("gpt_oss", all.dump());
}

TEST(GptOss, TakesTransformersDefaults) {
  const ModelConfig config = gpt_oss();
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.rope.theta, 150000);
  EXPECT_THAT(config.windows(), ElementsAre(128, 0, 128, 0));
  EXPECT_TRUE(config.attention_bias && config.attention_output_bias && config.expert_bias);
  EXPECT_TRUE(config.attention_sinks);
  EXPECT_EQ(config.activation, kernels::Activation::clamped);
  EXPECT_EQ(config.experts->count, 128);
  EXPECT_EQ(config.experts->per_token, 4);
  EXPECT_EQ(config.experts->ffn, 96);
  EXPECT_EQ(config.experts->routing, Routing::of_chosen);
}

TEST(GptOss, ReadsMxfp4AndRefusesOtherQuantization) {
  EXPECT_NO_THROW(gpt_oss(R"({"quantization_config": {"quant_method": "mxfp4"}})"));
  EXPECT_THROW(gpt_oss(R"({"quantization_config": {"quant_method": "gptq"}})"), Unsupported);
}

TEST(Parameters, AreThoseOfAllExpertsAndActiveOnesThoseThatATokenMeets) {
  const ModelConfig config = mixture(
      "qwen3_moe", R"({"num_experts": 6, "num_experts_per_tok": 2, "mlp_only_layers": [1]})");
  const int64_t attention = 64 * (2 * 64 + 2 * 32) + 2 * 16 + 2 * 64;
  const int64_t expert = 3 * 64 * 40, dense = 3 * 64 * 96, rest = 64 + 2 * 100 * 64;
  EXPECT_EQ(config.parameters(), 4 * attention + dense + 3 * (6 * 64 + 6 * expert) + rest);
  EXPECT_EQ(config.active_parameters(), config.parameters() - 3 * 4 * expert);
  EXPECT_EQ(config.flops_per_token(),
            2.0 * (4 * 64 * (2 * 64 + 2 * 32) + dense + 3 * (6 * 64 + 2 * expert) + 100 * 64));
}

TEST(Parameters, OfADenseModelAreAllActive) {
  const ModelConfig config = mixture("llama");
  EXPECT_EQ(config.active_parameters(), config.parameters());
}

struct Broken {
  std::string type, keys;
  std::vector<std::string> words;  ///< the message has all of them
};
class BrokenMixture : public testing::TestWithParam<Broken> {};

TEST_P(BrokenMixture, IsRefusedByTheKeysName) {
  try {
    mixture(GetParam().type, GetParam().keys);
    FAIL() << GetParam().keys << " is accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("config.json"));
    for (const std::string& word : GetParam().words) EXPECT_THAT(error.what(), HasSubstr(word));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Keys, BrokenMixture,
    testing::Values(
        Broken{"qwen3_moe",
               R"({"num_experts": 4})",
               {"num_experts_per_tok is absent", "takes 8 of the 4 experts"}},
        Broken{"mixtral",
               R"({"num_experts_per_tok": 9})",
               {"num_experts_per_tok is 9", "the 8 experts"}},
        Broken{"mixtral", R"({"num_local_experts": 0})", {"num_local_experts is 0"}},
        Broken{"olmoe", R"({"num_experts_per_tok": 0})", {"num_experts_per_tok is 0"}},
        Broken{"qwen3_moe",
               R"({"num_experts": 8, "num_local_experts": 16})",
               {"num_experts is 8", "num_local_experts is 16"}},
        Broken{"qwen3_moe",
               R"({"moe_intermediate_size": null})",
               {"moe_intermediate_size", "missing"}},
        Broken{"qwen3_moe", R"({"decoder_sparse_step": 0})", {"decoder_sparse_step is 0"}},
        Broken{"qwen3_moe", R"({"mlp_only_layers": [4]})", {"mlp_only_layers", "0 … 3"}},
        Broken{"qwen3_moe",
               R"({"use_sliding_window": true, "sliding_window": 32})",
               {"use_sliding_window"}},
        Broken{"qwen3_moe",
               R"({"shared_expert_intermediate_size": 64})",
               {"shared_expert_intermediate_size", "share"}},
        Broken{"olmoe", R"({"clip_qkv": 8.0})", {"clip_qkv"}},
        Broken{"gpt_oss", "{}", {"rope_scaling is missing"}},
        Broken{"gpt_oss",
               R"({"rope_scaling": {"rope_type": "default"}, "swiglu_limit": 5.0})",
               {"swiglu_limit is 5.0", "7"}},
        Broken{"gpt_oss",
               R"({"rope_scaling": {"rope_type": "default"}, "layer_types": ["full_attention"]})",
               {"layer_types", "1 entries"}},
        Broken{"qwen3_moe",
               R"({"quantization_config": {"quant_method": "mxfp4"}})",
               {"quantization_config"}},
        Broken{"llama", R"({"num_local_experts": 8})", {"num_local_experts", "mixture"}}));

}  // namespace
}  // namespace pecia::model
