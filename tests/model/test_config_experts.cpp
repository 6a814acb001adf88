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
  if (type == "qwen2_moe" || type == "qwen3_moe" || type == "glm4_moe" || type == "afmoe")
    config["moe_intermediate_size"] = 40;
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

TEST(Qwen2Moe, HasASharedExpertWithAGateAndBiases) {
  const ModelConfig config = mixture("qwen2_moe");
  EXPECT_EQ(config.experts->count, 60);
  EXPECT_EQ(config.experts->per_token, 4);
  EXPECT_EQ(config.experts->ffn, 40);
  EXPECT_EQ(config.experts->shared_ffn, 5632);
  EXPECT_TRUE(config.experts->shared_gate);
  EXPECT_EQ(config.experts->routing, Routing::of_all);
  EXPECT_TRUE(config.attention_bias);
  EXPECT_FALSE(config.attention_output_bias);
  EXPECT_FALSE(mixture("qwen2_moe", R"({"qkv_bias": false})").attention_bias);
  EXPECT_EQ(mixture("qwen2_moe", R"({"norm_topk_prob": true})").experts->routing,
            Routing::of_chosen);
  const auto without = mixture("qwen2_moe", R"({"shared_expert_intermediate_size": 0})");
  EXPECT_FALSE(without.experts->shared_gate);
  const ModelConfig other = mixture("qwen2_moe", R"({"shared_expert_intermediate_size": 48,
      "mlp_only_layers": [3], "decoder_sparse_step": 2})");
  EXPECT_EQ(other.experts->shared_ffn, 48);
  EXPECT_THAT(has_experts(other), ElementsAre(false, true, false, false));
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

TEST(GptOss, ReadsTheLimitAndTheSlopeOfItsActivation) {
  const ModelConfig config = gpt_oss(R"({"swiglu_limit": 5.5, "swiglu_alpha": 1.25})");
  EXPECT_EQ(config.activation,
            (kernels::Activation{kernels::Activation::Kind::clamped, 1.25f, 5.5f}));
}

TEST(Glm4Moe, TakesTransformersDefaults) {
  const ModelConfig config = mixture("glm4_moe");
  EXPECT_EQ(config.experts->count, 128);
  EXPECT_EQ(config.experts->per_token, 8);
  EXPECT_EQ(config.experts->ffn, 40);
  EXPECT_EQ(config.experts->shared_ffn, 40);
  EXPECT_EQ(config.experts->routing, Routing::sigmoid);
  EXPECT_EQ(config.experts->sigmoid, (kernels::SigmoidRouting{1, 1, true, 1}));
  EXPECT_TRUE(config.experts->choice_bias);
  EXPECT_THAT(has_experts(config), ElementsAre(false, true, true, true));
  EXPECT_EQ(config.qk_norm, QkNorm::none);
  EXPECT_FALSE(config.attention_bias || config.attention_output_bias || config.attention_gate);
  EXPECT_EQ(config.rope.rotary_dim, 8);
  EXPECT_EQ(config.rope.pairs, kernels::RopePairs::halves);
  EXPECT_EQ(config.draft_layers, 0);
  EXPECT_EQ(config.common_ffn(), 8);  // of 96, 40 and 40
}

TEST(Glm4Moe, ReadsWhatTheFileGives) {
  const ModelConfig config = mixture("glm4_moe", R"({"n_routed_experts": 16, "n_shared_experts": 3,
      "n_group": 4, "topk_group": 2, "norm_topk_prob": false, "routed_scaling_factor": 2.5,
      "first_k_dense_replace": 3, "use_qk_norm": true, "attention_bias": true,
      "num_nextn_predict_layers": 1})");
  EXPECT_EQ(config.experts->count, 16);
  EXPECT_EQ(config.experts->shared_ffn, 120);
  EXPECT_EQ(config.experts->sigmoid, (kernels::SigmoidRouting{4, 2, false, 2.5f}));
  EXPECT_THAT(has_experts(config), ElementsAre(false, false, false, true));
  EXPECT_EQ(config.qk_norm, QkNorm::each_head);
  EXPECT_TRUE(config.attention_bias && !config.attention_output_bias);
  EXPECT_EQ(config.draft_layers, 1);
}

TEST(MinimaxM2, TakesTransformersDefaultsAndTheRotatedDimensions) {
  const ModelConfig config = mixture("minimax_m2");
  EXPECT_EQ(config.experts->count, 256);
  EXPECT_EQ(config.experts->per_token, 8);
  EXPECT_EQ(config.experts->ffn, 96);
  EXPECT_EQ(config.experts->shared_ffn, 0);
  EXPECT_EQ(config.experts->sigmoid, (kernels::SigmoidRouting{1, 1, true, 1}));
  EXPECT_THAT(has_experts(config), ElementsAre(true, true, true, true));
  EXPECT_EQ(config.qk_norm, QkNorm::all_heads);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.rope.theta, 5e6);
  EXPECT_EQ(config.rope.rotary_dim, 128);
  EXPECT_EQ(mixture("minimax_m2", R"({"rotary_dim": 64})").rope.rotary_dim, 64);
  EXPECT_EQ(mixture("minimax_m2", R"({"rope_parameters": {"rope_type": "default",
      "rope_theta": 5e6, "partial_rotary_factor": 0.25}})")
                .rope.rotary_dim,
            32);
}

TEST(Afmoe, RotatesLayersWithAWindowOnly) {
  const ModelConfig config = mixture("afmoe", R"({"mup_enabled": true, "route_scale": 2.0})");
  EXPECT_THAT(config.windows(), ElementsAre(1024, 1024, 1024, 0));
  std::vector<Rotation> rotations;
  for (const LayerConfig& layer : config.pattern) rotations.push_back(layer.rotation);
  EXPECT_THAT(rotations,
              ElementsAre(Rotation::main, Rotation::main, Rotation::main, Rotation::none));
  EXPECT_THAT(has_experts(config), ElementsAre(false, true, true, true));
  EXPECT_EQ(config.experts->count, 64);
  EXPECT_EQ(config.experts->per_token, 6);
  EXPECT_EQ(config.experts->shared_ffn, 80);
  EXPECT_EQ(config.experts->sigmoid, (kernels::SigmoidRouting{1, 1, true, 2}));
  EXPECT_EQ(config.embedding_scale, 8);  // √64
  EXPECT_EQ(mixture("afmoe").embedding_scale, 1);
  EXPECT_TRUE(config.attention_gate && config.norm_before && config.norm_after);
  EXPECT_EQ(config.num_kv_heads, 2);
}

TEST(Afmoe, IsRefusedWithoutAWindow) {
  const std::string text = R"({"model_type": "afmoe", "vocab_size": 100, "hidden_size": 64,
      "intermediate_size": 96, "moe_intermediate_size": 40, "num_hidden_layers": 4,
      "num_attention_heads": 4, "max_position_embeddings": 8192, "sliding_window": null})";
  try {
    parse_config(text, "config.json");
    FAIL() << "it is accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("sliding_window is null, but only layers with a window"));
  }
}

TEST(Parameters, CountSharedExpertsDenseLayersBiasesAndGates) {
  const ModelConfig glm = mixture("glm4_moe", R"({"n_routed_experts": 6, "num_experts_per_tok": 2,
      "n_shared_experts": 2})");
  const int64_t attention = 64 * (2 * 64 + 2 * 32) + 2 * 64;
  const int64_t expert = 3 * 64 * 40, dense = 3 * 64 * 96, rest = 64 + 2 * 100 * 64;
  EXPECT_EQ(glm.parameters(), 4 * attention + dense + 3 * (6 * 64 + 6 + 8 * expert) + rest);
  EXPECT_EQ(glm.active_parameters(), glm.parameters() - 3 * 4 * expert);
  EXPECT_EQ(glm.flops_per_token(),
            2.0 * (4 * 64 * (2 * 64 + 2 * 32) + dense + 3 * (6 * 64 + 4 * expert) + 100 * 64));
  EXPECT_EQ(glm.flops_after_mixers(), 2.0 * (64 * 64 + 6 * 64 + 4 * expert));
  const ModelConfig afmoe = mixture("afmoe", R"({"head_dim": 16, "num_shared_experts": 0})");
  EXPECT_EQ(afmoe.parameters(), 4 * (attention + 64 * 64 + 2 * 16 + 2 * 64) + dense +
                                    3 * (64 * 64 + 64 + 64 * expert) + rest);
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
               R"({"rope_scaling": {"rope_type": "default"}, "swiglu_limit": 0})",
               {"swiglu_limit is 0"}},
        Broken{"glm4_moe", R"({"n_group": 3})", {"n_group is 3", "128 experts"}},
        Broken{"glm4_moe", R"({"n_group": 64})", {"n_group is 64"}},
        Broken{"glm4_moe",
               R"({"n_group": 32, "topk_group": 1})",
               {"topk_group is 1", "takes 8 experts"}},
        Broken{"glm4_moe", R"({"scoring_func": "softmax"})", {"scoring_func", "sigmoid"}},
        Broken{"glm4_moe", R"({"topk_method": "greedy"})", {"topk_method", "noaux_tc"}},
        Broken{"minimax_m2", R"({"attn_type_list": [1, 0, 1, 1]})", {"attn_type_list", "kind 1"}},
        Broken{"minimax_m2", R"({"shared_intermediate_size": 64})", {"shared_intermediate_size"}},
        Broken{"minimax_m2", R"({"qk_norm_type": "per_head"})", {"qk_norm_type"}},
        Broken{"minimax_m2", R"({"rotary_dim": 256})", {"rotary_dim is 256"}},
        Broken{"afmoe", R"({"score_func": "softmax"})", {"score_func"}},
        Broken{"afmoe", R"({"route_norm": false})", {"route_norm"}},
        Broken{"qwen3_moe", R"({"routed_scaling_factor": 2.5})", {"routed_scaling_factor"}},
        Broken{"qwen3_moe", R"({"n_shared_experts": 1})", {"n_shared_experts", "share"}},
        Broken{"gpt_oss",
               R"({"rope_scaling": {"rope_type": "default"}, "layer_types": ["full_attention"]})",
               {"layer_types", "1 entries"}},
        Broken{"qwen3_moe",
               R"({"quantization_config": {"quant_method": "mxfp4"}})",
               {"quantization_config"}},
        Broken{"llama", R"({"num_local_experts": 8})", {"num_local_experts", "mixture"}}));

}  // namespace
}  // namespace pecia::model
