// SPDX-License-Identifier: Apache-2.0
/// What configurations of the families with patterns of their own say, and what they may not say.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/base/core/error.hpp"
#include "lib/model/config/config.hpp"
#include "lib/model/config/family.hpp"

namespace pecia::model {
namespace {

using nlohmann::json;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

/// A small model of the type; `keys` are added, and null removes one.
std::string config_text(const std::string& type, const std::string& keys = "{}") {
  json config = {{"model_type", type},       {"vocab_size", 100},
                 {"hidden_size", 64},        {"intermediate_size", 96},
                 {"num_hidden_layers", 6},   {"num_attention_heads", 4},
                 {"num_key_value_heads", 2}, {"max_position_embeddings", 8192}};
  config.merge_patch(json::parse(keys));
  return config.dump();
}

ModelConfig small(const std::string& type, const std::string& keys = "{}") {
  return parse_config(config_text(type, keys), "config.json");
}

std::vector<Rotation> rotations(const ModelConfig& config) {
  std::vector<Rotation> found;
  for (const LayerConfig& layer : config.pattern) found.push_back(layer.rotation);
  return found;
}

constexpr auto none = Rotation::none, rotated = Rotation::main, local = Rotation::local;

TEST(Families, StandInTheOrderOfTheEnum) {
  for (size_t i = 0; i < all_families().size(); ++i)
    EXPECT_EQ(static_cast<size_t>(all_families()[i].family), i);
}

TEST(Families, AreTheTableOfTheReadme) {
  std::stringstream readme;
  readme << std::ifstream(PECIA_README).rdbuf();
  EXPECT_THAT(readme.str(), HasSubstr(families_markdown())) << "put the table there";
}

TEST(Granite, HasMultipliersOfOneUnlessTheFileSaysOthers) {
  const ModelConfig absent = small("granite");
  EXPECT_EQ(absent.attention_scale, 1.0f);  // and not head_dim^-½
  EXPECT_EQ(absent.embedding_scale, 1);
  EXPECT_EQ(absent.residual_scale, 1);
  EXPECT_EQ(absent.logits_divisor, 1);
  const ModelConfig given =
      small("granite", R"({"attention_multiplier": 0.0078125, "embedding_multiplier": 12.0,
                          "residual_multiplier": 0.22, "logits_scaling": 16.0})");
  EXPECT_EQ(given.attention_scale, 0.0078125f);
  EXPECT_EQ(given.embedding_scale, 12);
  EXPECT_EQ(given.residual_scale, 0.22);
  EXPECT_EQ(given.logits_divisor, 16);
}

TEST(SmolLm3, RotatesLayersThatTheListNames) {
  const ModelConfig absent = small("smollm3", R"({"num_key_value_heads": null})");
  EXPECT_THAT(rotations(absent), ElementsAre(rotated, rotated, rotated, none, rotated, rotated));
  EXPECT_EQ(absent.rope.theta, 2e6);
  EXPECT_TRUE(absent.tied_embeddings);
  EXPECT_EQ(absent.num_kv_heads, 4);
  EXPECT_THAT(rotations(small("smollm3", R"({"no_rope_layers": [0, 1, 1, 0, 1, 1]})")),
              ElementsAre(none, rotated, rotated, none, rotated, rotated));
  EXPECT_THAT(rotations(small("smollm3", R"({"no_rope_layer_interval": 3})")),
              ElementsAre(rotated, rotated, none, rotated, rotated, none));
}

TEST(Phi3, ReadsLongropeWithItsOriginalLengthOutside) {
  const ModelConfig config =
      small("phi3", R"({"partial_rotary_factor": 0.5, "original_max_position_embeddings": 2048,
                       "rope_scaling": {"type": "su", "short_factor": [1, 1.5, 2, 3],
                                        "long_factor": [1, 2, 4, 8]}})");
  EXPECT_EQ(config.rope.scaling, RopeScaling::longrope);
  EXPECT_EQ(config.rope.rotary_dim, 8);
  EXPECT_EQ(config.rope.original_max_positions, 2048);
  EXPECT_EQ(config.rope.factor, 4.0);
  EXPECT_THAT(config.rope.long_factors, ElementsAre(1, 2, 4, 8));
  EXPECT_EQ(config.max_positions, 8192);
  EXPECT_THAT(config.windows(), Each(0));
  EXPECT_THAT(small("phi3", R"({"sliding_window": 2047})").windows(), Each(2047));
}

TEST(Olmo, HasNormsAfterBlocksOnly) {
  const ModelConfig config = small("olmo2");
  EXPECT_FALSE(config.norm_before);
  EXPECT_TRUE(config.norm_after);
  EXPECT_EQ(config.qk_norm, QkNorm::all_heads);
  // Each layer: q and o of 64 × 64, k and v of 64 × 32, three of 64 × 96, norms of 64, 64, 64, 32.
  const int64_t layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96 + 3 * 64 + 32;
  EXPECT_EQ(config.parameters(), 6 * layer + 64 + 2 * 100 * 64);
}

TEST(Olmo3, ScalesFullLayersOnly) {
  const std::string yarn = R"({"rope_type": "yarn", "rope_theta": 500000, "factor": 8.0,
                               "original_max_position_embeddings": 1024})";
  const ModelConfig old_keys =
      small("olmo3", R"({"rope_theta": 500000, "rope_scaling": {"rope_type": "yarn", "factor": 8.0,
                        "original_max_position_embeddings": 1024}})");
  const ModelConfig new_keys = small("olmo3", R"({"rope_parameters": {"full_attention": )" + yarn +
                                                  R"(, "sliding_attention": {"rope_type": "default",
                                                    "rope_theta": 500000}}})");
  for (const ModelConfig& config : {old_keys, new_keys}) {
    EXPECT_THAT(config.windows(), ElementsAre(4096, 4096, 4096, 0, 4096, 4096));
    EXPECT_THAT(rotations(config), ElementsAre(local, local, local, rotated, local, local));
    EXPECT_EQ(config.rope.scaling, RopeScaling::yarn);
    EXPECT_EQ(config.local_rope->scaling, RopeScaling::none);
    EXPECT_EQ(config.local_rope->theta, 500000);
  }
}

TEST(Mistral, IsReadFromAModelThatReadsImages) {
  const ModelConfig config = parse_config(R"({
      "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3",
      "spatial_merge_size": 2, "torch_dtype": "bfloat16", "vision_feature_layer": -1,
      "text_config": {"attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu",
                      "hidden_size": 5120, "intermediate_size": 32768,
                      "max_position_embeddings": 131072, "model_type": "mistral",
                      "num_attention_heads": 32, "num_hidden_layers": 40,
                      "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
                      "rope_theta": 1000000000.0, "sliding_window": null, "vocab_size": 131072},
      "vision_config": {"model_type": "pixtral"}})",
                                          "config.json");
  EXPECT_EQ(config.family, Family::mistral);
  EXPECT_EQ(config.rope.theta, 1e9);
  EXPECT_THAT(config.windows(), Each(0));
  EXPECT_EQ(config.stored_dtype, DType::bf16);
}

TEST(Ministral, HasWindowsInTheLayersThatTheFileListsOrInAll) {
  EXPECT_THAT(small("ministral").windows(), Each(4096));
  EXPECT_THAT(small("ministral", R"({"sliding_window": 128, "layer_types": [
                    "full_attention", "sliding_attention", "sliding_attention",
                    "sliding_attention", "full_attention", "sliding_attention"]})")
                  .windows(),
              ElementsAre(0, 128, 128, 128, 0, 128));
}

/// The keys of Ministral 3 8B, whose text part is such a model.
TEST(Ministral3, ScalesQueriesByTheirPosition) {
  const ModelConfig config = parse_config(R"({
      "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3",
      "dtype": "bfloat16",
      "text_config": {"head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
                      "intermediate_size": 14336, "max_position_embeddings": 262144,
                      "model_type": "ministral3", "num_attention_heads": 32,
                      "num_hidden_layers": 34, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
                      "rope_parameters": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0,
                          "llama_4_scaling_beta": 0.1, "max_position_embeddings": 262144,
                          "mscale": 1.0, "mscale_all_dim": 1.0,
                          "original_max_position_embeddings": 16384,
                          "rope_theta": 1000000.0, "rope_type": "yarn", "type": "yarn"},
                      "sliding_window": null, "vocab_size": 131072},
      "vision_config": {"model_type": "pixtral"}})",
                                          "config.json");
  EXPECT_EQ(config.family, Family::ministral3);
  EXPECT_EQ(config.rope.scaling, RopeScaling::yarn);
  EXPECT_EQ(config.rope.temperature_beta, 0.1);
  EXPECT_EQ(config.max_positions, 262144);
  EXPECT_THAT(config.windows(), Each(0));
}

TEST(Apertus, HasNoGate) {
  const std::string scaled = R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
      "hidden_act": "xielu"})";
  const ModelConfig config = small("apertus", scaled);
  EXPECT_TRUE(config.xielu);
  EXPECT_EQ(config.qk_norm, QkNorm::each_head);
  EXPECT_EQ(config.rope.theta, 12e6);
  // Each layer: q and o of 64 × 64, k and v of 64 × 32, two of 64 × 96, norms of 64, 64, 16, 16, and
  // two curvatures.
  const int64_t matrices = 2 * 64 * 64 + 2 * 64 * 32 + 2 * 64 * 96;
  EXPECT_EQ(config.parameters(), 6 * (matrices + 2 * 64 + 2 * 16 + 2) + 64 + 2 * 100 * 64);
  EXPECT_EQ(config.flops_per_token(), 2.0 * (6 * matrices + 100 * 64));
}

TEST(Gemma3, HasTwoBasesAndFiveLayersOfSixWithAWindow) {
  const ModelConfig config = small("gemma3_text", R"({"hidden_size": 81, "sliding_window": 512})");
  EXPECT_THAT(config.windows(), ElementsAre(512, 512, 512, 512, 512, 0));
  EXPECT_THAT(rotations(config), ElementsAre(local, local, local, local, local, rotated));
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.local_rope->theta, 1e4);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.attention_scale, 0.0625f);  // 256^-½
  EXPECT_EQ(config.embedding_scale, 9);
  EXPECT_EQ(config.norm_weight_offset, 1);
  EXPECT_TRUE(config.norm_before && config.norm_after && config.tied_embeddings);
  EXPECT_EQ(config.activation, kernels::Activation::gelu_tanh);
  EXPECT_EQ(small("gemma3_text", R"({"query_pre_attn_scalar": 4})").attention_scale, 0.5f);
  EXPECT_THAT(small("gemma3_text", R"({"sliding_window_pattern": 2})").windows(),
              ElementsAre(4096, 0, 4096, 0, 4096, 0));
}

/// As published: most keys of the 4B model are left to the defaults.
TEST(Gemma3, IsReadFromAModelThatReadsImages) {
  const ModelConfig config = parse_config(R"({
      "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
      "eos_token_id": [1, 106], "torch_dtype": "bfloat16",
      "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
                      "model_type": "gemma3_text", "num_hidden_layers": 34,
                      "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                      "sliding_window": 1024},
      "vision_config": {"hidden_size": 1152}})",
                                          "config.json");
  EXPECT_EQ(config.vocab, 262208);
  EXPECT_EQ(config.num_heads, 8);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.max_positions, 131072);  // the factor is in it
  EXPECT_EQ(config.rope.factor, 8);
  EXPECT_EQ(config.local_rope->factor, 1);
  EXPECT_EQ(config.stored_dtype, DType::bf16);
  EXPECT_THAT(config.stop_token_ids, ElementsAre(1, 106));
  EXPECT_NEAR(static_cast<double>(config.parameters()), 3.88e9, 0.005e9);
}

struct FamilyKeys {
  std::string type, keys;
  std::vector<std::string> words;  ///< the message has all of them
};
class FamilyRefusal : public testing::TestWithParam<FamilyKeys> {};

TEST_P(FamilyRefusal, NamesFileKeyAndValue) {
  try {
    small(GetParam().type, GetParam().keys);
    FAIL() << GetParam().keys << " is accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("config.json"));
    for (const std::string& word : GetParam().words) EXPECT_THAT(error.what(), HasSubstr(word));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, FamilyRefusal,
    testing::Values(
        FamilyKeys{"llama", R"({"attention_multiplier": 0.1})", {"attention_multiplier", "0.1"}},
        FamilyKeys{
            "llama", R"({"no_rope_layers": [1, 1, 1, 1, 1, 1]})", {"no_rope_layers", "llama"}},
        FamilyKeys{"olmo2", R"({"query_pre_attn_scalar": 64})", {"query_pre_attn_scalar", "64"}},
        FamilyKeys{"granite", R"({"residual_multiplier": 0})", {"residual_multiplier is 0"}},
        FamilyKeys{"granite", R"({"num_local_experts": 32})", {"num_local_experts", "mixture"}},
        FamilyKeys{"smollm3", R"({"no_rope_layers": [1, 0]})", {"no_rope_layers", "2 entries"}},
        FamilyKeys{
            "smollm3", R"({"no_rope_layers": [1, 0, 2, 1, 1, 1]})", {"no_rope_layers", "0 … 1"}},
        FamilyKeys{"smollm3",
                   R"({"use_sliding_window": true, "sliding_window": 8})",
                   {"use_sliding_window", "layer_types"}},
        FamilyKeys{"phi3",
                   R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 2]}})",
                   {"rope_scaling.short_factor", "2 entries", "16 dimensions"}},
        FamilyKeys{
            "phi3",
            R"({"rope_scaling": {"type": "longrope", "long_factor": [1, 2, 1, 2, 1, 2, 1, 2]}})",
            {"rope_scaling.short_factor", "missing"}},
        FamilyKeys{"phi3",
                   R"({"rope_scaling": {"type": "longrope", "long_mscale": 1.2}})",
                   {"rope_scaling.long_mscale"}},
        FamilyKeys{"olmo2", R"({"clip_qkv": 8.0})", {"clip_qkv", "clipped"}},
        FamilyKeys{"olmo3",
                   R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})",
                   {"rope_parameters.sliding_attention", "missing"}},
        FamilyKeys{"olmo3",
                   R"({"rope_parameters": {"full_attention": {}, "sliding_attention": {},
                                        "rope_theta": 3}})",
                   {"rope_parameters.rope_theta"}},
        FamilyKeys{"olmo3", R"({"layer_types": ["full_attention"]})", {"layer_types", "1 entries"}},
        FamilyKeys{
            "gemma3_text", R"({"final_logit_softcapping": 30})", {"final_logit_softcapping"}},
        FamilyKeys{"gemma3_text", R"({"attn_logit_softcapping": 50})", {"attn_logit_softcapping"}},
        FamilyKeys{"gemma3_text", R"({"use_bidirectional_attention": true})", {"later tokens"}},
        FamilyKeys{"gemma3_text", R"({"hidden_activation": "gelu"})", {"gelu_pytorch_tanh"}},
        FamilyKeys{"gemma3_text",
                   R"({"sliding_window_pattern": 2, "layer_types": ["full_attention",
                    "full_attention", "full_attention", "full_attention", "full_attention",
                    "full_attention"]})",
                   {"sliding_window_pattern is 2", "layer 0", "layer_types"}},
        FamilyKeys{"gemma3_text",
                   R"({"layer_types": ["chunked_attention",
                    "full_attention", "full_attention", "full_attention", "full_attention",
                    "full_attention"]})",
                   {"layer_types", "chunked_attention", "layer 0"}},
        FamilyKeys{"gemma3", "{}", {"text_config", "missing"}},
        FamilyKeys{"mistral3", "{}", {"text_config", "missing"}},
        FamilyKeys{"apertus", "{}", {"rope_scaling", "missing"}},
        FamilyKeys{"apertus", R"({"hidden_act": "silu"})", {"hidden_act", "only xielu"}},
        FamilyKeys{"llama", R"({"hidden_act": "xielu"})", {"hidden_act", "only silu"}},
        FamilyKeys{"mistral",
                   R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                    "llama_4_scaling_beta": 0.1}})",
                   {"rope_scaling.llama_4_scaling_beta", "not implemented"}},
        FamilyKeys{"ministral3", "{}", {"rope_scaling", "missing"}},
        FamilyKeys{"ministral3",
                   R"({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}})",
                   {"rope_parameters.llama_4_scaling_beta", "missing"}},
        FamilyKeys{"ministral3",
                   R"({"rope_parameters": {"rope_type": "default", "llama_4_scaling_beta": 0.1}})",
                   {"rope_parameters.rope_type", "only yarn"}},
        FamilyKeys{
            "ministral", R"({"layer_types": ["sliding_attention"]})", {"layer_types", "1 entries"}},
        FamilyKeys{
            "gemma3",
            R"({"text_config": {"model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 96,
                    "num_hidden_layers": 2}, "quantization_config": {"bits": 4}})",
            {"quantization_config"}}));

}  // namespace
}  // namespace pecia::model
