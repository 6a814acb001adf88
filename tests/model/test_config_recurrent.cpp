// SPDX-License-Identifier: Apache-2.0
/// What configurations say of recurrent layers, what models with them count, and what they may not
/// say.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lib/base/core/error.hpp"
#include "lib/model/config/config.hpp"

namespace pecia::model {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

/// `keys` are added, and null stays null.
ModelConfig hybrid(const std::string& type, const std::string& keys = "{}") {
  json config = {
      {"model_type", type},      {"vocab_size", 100},           {"hidden_size", 64},
      {"num_hidden_layers", 4},  {"num_attention_heads", 4},    {"num_key_value_heads", 2},
      {"intermediate_size", 96}, {"moe_intermediate_size", 24}, {"max_position_embeddings", 4096}};
  if (type == "qwen3_5_text") config.erase("moe_intermediate_size");
  if (type == "granitemoehybrid") {
    config.erase("moe_intermediate_size");
    config.update(
        json{{"mamba_n_heads", 8}, {"layer_types", {"mamba", "attention", "mamba", "mamba"}}});
  }
  config.update(json::parse(keys));
  return parse_config(config.dump(), "config.json");
}

template <typename E>
std::string refusal_of(const std::string& type, const std::string& keys) {
  try {
    hybrid(type, keys);
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

std::vector<int64_t> layers_with(const ModelConfig& config, MixerKind mixer) {
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < config.layers; ++layer)
    if (config.mixer(layer) == mixer) layers.push_back(layer);
  return layers;
}

std::vector<int64_t> sizes_of(const RecurrentConfig& sizes) {
  return {sizes.key_heads, sizes.key_dim, sizes.heads, sizes.value_dim, sizes.conv_rows};
}

TEST(Qwen35, TakesTransformersDefaults) {
  const ModelConfig config = hybrid("qwen3_5_text", R"({"num_hidden_layers": 8})");
  EXPECT_THAT(layers_with(config, MixerKind::attention), ElementsAre(3, 7));
  EXPECT_THAT(layers_with(config, MixerKind::recurrence), ElementsAre(0, 1, 2, 4, 5, 6));
  EXPECT_THAT(sizes_of(*config.recurrent), ElementsAre(16, 128, 32, 128, 4));
  EXPECT_TRUE(config.recurrent->corrects);
  EXPECT_FALSE(config.recurrent->conv_bias || config.experts || config.attention_bias);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.rope.rotary_dim, 64);
  EXPECT_EQ(config.rope.theta, 1e4);
  EXPECT_EQ(config.norm_weight_offset, 1);
  EXPECT_EQ(config.qk_norm, QkNorm::each_head);
  EXPECT_TRUE(config.attention_gate);
}

TEST(Qwen35, OfAModelThatSeesIsItsText) {
  const ModelConfig config = parse_config(
      R"({"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"],
          "tie_word_embeddings": true, "vision_config": {"hidden_size": 8},
          "text_config": {"model_type": "qwen3_5_text", "vocab_size": 100, "hidden_size": 64,
            "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 4096,
            "attn_output_gate": true, "output_gate_type": "swish", "mtp_num_hidden_layers": 1,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7,
              "partial_rotary_factor": 0.5, "mrope_section": [3, 3, 2],
              "mrope_interleaved": true}}})",
      "config.json");
  EXPECT_EQ(config.family, Family::qwen3_5);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_THAT(layers_with(config, MixerKind::attention), ElementsAre(1));
  EXPECT_EQ(config.rope.rotary_dim, 16);
  EXPECT_EQ(config.rope.theta, 1e7);
}

/// Counted by hand, and by the tensors of a checkpoint in test_recurrent_weights.
TEST(Qwen35, CountsAttentionInItsLayersAlone) {
  const ModelConfig config = hybrid(
      "qwen3_5_text", R"({"head_dim": 32, "linear_num_key_heads": 2, "linear_key_head_dim": 24,
                          "linear_num_value_heads": 8, "linear_value_head_dim": 16,
                          "linear_conv_kernel_dim": 3})");
  EXPECT_FALSE(config.has_keys(0) || config.has_values(0));
  EXPECT_TRUE(config.has_keys(3));
  EXPECT_EQ(config.keys_of(0), -1);
  EXPECT_EQ(config.keys_of(3), 3);
  EXPECT_EQ(config.kv_bytes_per_token(DType::bf16), 2 * 2 * 2 * 32);
  EXPECT_EQ(config.attention_flops_per_pair(), 2.0 * 4 * (32 + 32));
  const int64_t channels = 2 * 2 * 24 + 8 * 16;
  const int64_t recurrent = 64 * (channels + 8 * 16 + 2 * 8 + 8 * 16);
  const int64_t attention = 64 * 32 * (3 * 4 + 2 * 2);
  const int64_t ffn = 3 * 64 * 96;
  EXPECT_EQ(config.parameters(), 3 * (recurrent + channels * 3 + 2 * 8 + 16) + attention + 2 * 32 +
                                     4 * (ffn + 2 * 64) + 64 + 2 * 100 * 64);
  EXPECT_EQ(config.active_parameters(), config.parameters());
  EXPECT_EQ(config.flops_per_token(), 2.0 * (3 * recurrent + attention + 4 * ffn + 100 * 64));
  EXPECT_EQ(config.flops_after_mixers(), 2.0 * (64 * 4 * 32 + ffn));
  EXPECT_EQ(config.last_mixing_layer(), 3);
  EXPECT_EQ(config.common_heads(), 4) << "4 and 8";
  const int64_t state = 8 * 24 * 16, tail = 2 * channels;
  EXPECT_EQ(config.state_bytes(), 3 * 4 * (state + tail));
  EXPECT_EQ(config.state_bytes(2), 3 * 4 * (state + tail) / 2);
  // Four ranks: two of them need each key head.
  EXPECT_EQ(config.state_bytes(4), 3 * 4 * (state / 4 + 2 * (2 * 24 + 8 * 16 / 4)));
  EXPECT_EQ(config.recurrence_flops_per_token(), 3.0 * (7 * state + 2 * 3 * channels));
  EXPECT_EQ(hybrid("qwen3_5_text").state_bytes(1), 3 * 4 * (32 * 128 * 128 + 3 * 8192));
}

TEST(Qwen3Next, HasExpertsInAllLayersOrByTheList) {
  const ModelConfig config = hybrid("qwen3_next");
  EXPECT_EQ(config.experts->count, 512);
  EXPECT_EQ(config.experts->per_token, 10);
  EXPECT_EQ(config.experts->shared_ffn, 512);
  EXPECT_TRUE(config.experts->shared_gate);
  EXPECT_EQ(config.experts->routing, kernels::Routing::of_chosen);
  EXPECT_EQ(config.num_layers(FeedForward::experts), 4);
  EXPECT_EQ(hybrid("qwen3_next", R"({"norm_topk_prob": false})").experts->routing,
            kernels::Routing::of_all);
  EXPECT_EQ(hybrid("qwen3_next", R"({"mlp_only_layers": [1]})").num_layers(FeedForward::dense), 1);
  EXPECT_EQ(hybrid("qwen3_next", R"({"decoder_sparse_step": 2})").num_layers(FeedForward::dense),
            2);
  EXPECT_THAT(
      layers_with(hybrid("qwen3_next", R"({"full_attention_interval": 2})"), MixerKind::attention),
      ElementsAre(1, 3));
}

TEST(Qwen35Moe, NormsTheWeightsOfExpertsAndMayLackAnFfn) {
  const ModelConfig config =
      hybrid("qwen3_5_moe_text", R"({"intermediate_size": null, "num_experts": 8})");
  EXPECT_EQ(config.experts->routing, kernels::Routing::of_chosen);
  EXPECT_EQ(config.experts->per_token, 8);
  EXPECT_EQ(config.num_layers(FeedForward::experts), 4);
}

TEST(GraniteMoeHybrid, TakesTransformersDefaults) {
  const ModelConfig config = hybrid("granitemoehybrid");
  EXPECT_THAT(sizes_of(*config.recurrent), ElementsAre(1, 256, 8, 16, 4));
  EXPECT_FALSE(config.recurrent->corrects);
  EXPECT_TRUE(config.recurrent->conv_bias);
  EXPECT_EQ(config.recurrent->least_step, 0);
  EXPECT_EQ(config.recurrent->most_step, std::numeric_limits<double>::infinity());
  EXPECT_THAT(layers_with(config, MixerKind::attention), ElementsAre(1));
  EXPECT_EQ(config.pattern[1].rotation, Rotation::none);
  EXPECT_EQ(config.experts->count, 8);
  EXPECT_EQ(config.experts->per_token, 2);
  EXPECT_EQ(config.experts->ffn, 96);
  EXPECT_EQ(config.experts->shared_ffn, 1024);
  EXPECT_EQ(config.experts->routing, kernels::Routing::of_chosen);
  EXPECT_EQ(config.recurrence_flops_per_token(), 3.0 * (5 * 256 * 128 + 2 * 4 * (128 + 2 * 256)));
  EXPECT_EQ(config.kv_bytes_per_token(DType::bf16), 2 * 2 * 2 * 16);
}

TEST(GraniteMoeHybrid, MayHaveNoExpertsNoRecurrenceAndRotation) {
  const ModelConfig dense =
      hybrid("granitemoehybrid", R"({"num_local_experts": 0, "shared_intermediate_size": 40})");
  EXPECT_FALSE(dense.experts);
  EXPECT_EQ(dense.ffn, 40);
  EXPECT_EQ(dense.num_layers(FeedForward::dense), 4);
  const ModelConfig plain =
      hybrid("granitemoehybrid", R"({"num_local_experts": 0, "position_embedding_type": "rope",
          "layer_types": ["attention", "attention", "full_attention", "attention"]})");
  EXPECT_FALSE(plain.recurrent);
  EXPECT_EQ(plain.num_layers(MixerKind::attention), 4);
  EXPECT_EQ(plain.pattern[2].rotation, Rotation::main);
  EXPECT_THAT(
      refusal_of<Unsupported>("granitemoehybrid", R"({"position_embedding_type": "alibi"})"),
      HasSubstr("position_embedding_type is \"alibi\""));
}

ModelConfig nemotron(const std::string& pattern, const std::string& keys = "{}") {
  json more = json::parse(keys);
  more["hybrid_override_pattern"] = pattern;
  return hybrid("nemotron_h", more.dump());
}

TEST(NemotronH, HasLayersOfOneBlock) {
  const ModelConfig config = nemotron("M-M*E", R"({"num_hidden_layers": 52})");
  EXPECT_EQ(config.layers, 5);
  EXPECT_THAT(layers_with(config, MixerKind::recurrence), ElementsAre(0, 2));
  EXPECT_THAT(layers_with(config, MixerKind::attention), ElementsAre(3));
  EXPECT_THAT(layers_with(config, MixerKind::none), ElementsAre(1, 4));
  EXPECT_EQ(config.feed_forward(0), FeedForward::none);
  EXPECT_EQ(config.feed_forward(1), FeedForward::dense);
  EXPECT_EQ(config.feed_forward(4), FeedForward::experts);
  EXPECT_EQ(config.keys_of(1), -1);
  EXPECT_EQ(config.pattern[3].rotation, Rotation::none);
  EXPECT_THAT(sizes_of(*config.recurrent), ElementsAre(8, 128, 128, 64, 4));
  EXPECT_TRUE(config.recurrent->conv_bias);
  EXPECT_EQ(config.activation, kernels::Activation::relu);
  EXPECT_EQ(config.matrices_of_ffn(), 2);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.experts->count, 8);
  EXPECT_EQ(config.experts->per_token, 2);
  EXPECT_EQ(config.experts->shared_ffn, 7688);
  EXPECT_EQ(config.experts->routing, kernels::Routing::sigmoid);
  EXPECT_TRUE(config.experts->choice_bias);
  const int64_t inner = 128 * 64, groups = 2 * 8 * 128;
  const int64_t mamba =
      64 * (2 * inner + groups + 128 + inner) + 5 * (inner + groups) + 3 * 128 + inner;
  const int64_t experts = 2 * 64 * (8 * 24 + 7688) + 8 * 64 + 8;
  EXPECT_EQ(config.parameters(), 2 * mamba + 2 * 64 * 96 + 64 * 128 * (2 * 4 + 2 * 2) + experts +
                                     5 * 64 + 64 + 2 * 100 * 64);
}

TEST(NemotronH, MayHaveExpertsOfLatents) {
  const ModelConfig wide = nemotron("M*E");
  const ModelConfig config = nemotron("M*E", R"({"moe_latent_size": 16})");
  EXPECT_EQ(wide.experts->latent, 0);
  EXPECT_EQ(config.experts->latent, 16);
  // Hidden states have 64 numbers, and each of 8 experts 24 columns; a token takes two of them.
  EXPECT_EQ(config.parameters() - wide.parameters(), 2 * 64 * 16 - 8 * 2 * 24 * (64 - 16));
  EXPECT_EQ(config.active_parameters() - wide.active_parameters(),
            2 * 64 * 16 - 2 * 2 * 24 * (64 - 16));
}

TEST(NemotronH, IsReadInWordsToo) {
  for (const char* key : {"layer_types", "layers_block_type"}) {
    const ModelConfig config = hybrid(
        "nemotron_h",
        fmt::format(R"({{"{}": ["mamba", "moe", "attention", "mlp", "linear_attention"]}})", key));
    EXPECT_EQ(config.pattern, nemotron("ME*-M").pattern);
  }
  EXPECT_FALSE(nemotron("M*-M").experts);
  EXPECT_EQ(nemotron("M*-M--").last_mixing_layer(), 3);
  EXPECT_EQ(nemotron("M*", R"({"layer_norm_epsilon": 0.25})").rms_norm_eps, 0.25);
}

TEST(NemotronH, RefusesOtherLayersAndOptions) {
  const auto refused = [](const std::string& pattern, const std::string& keys) -> std::string {
    try {
      nemotron(pattern, keys);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refused("M*X", "{}"), HasSubstr("'X' (layer 2) is not implemented"));
  EXPECT_THAT(refused("", "{}"), HasSubstr("with 0 layers"));
  EXPECT_THAT(refused("MM-", "{}"), HasSubstr("so no layer has attention"));
  EXPECT_THAT(refused("*-", "{}"), HasSubstr("so no layer is a recurrence"));
  EXPECT_THAT(refusal_of<InputError>("nemotron_h", "{}"),
              HasSubstr("hybrid_override_pattern is missing"));
  for (const char* keys :
       {R"({"moe_latent_size": 0})", R"({"mlp_hidden_act": "silu"})", R"({"use_bias": true})",
        R"({"mlp_bias": true})", R"({"mamba_hidden_act": "gelu"})"})
    EXPECT_NE(refused("M*E", keys), "accepted") << keys;
}

/// transformers 4 writes the bare word, which is no JSON, and 5 an object.
TEST(GraniteMoeHybrid, ReadsInfinityAsBothVersionsWriteIt) {
  const auto limits = [](const std::string& value) {
    const std::string text =
        R"({"model_type": "granitemoehybrid", "vocab_size": 100, "hidden_size": 64,
            "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
            "mamba_n_heads": 8, "layer_types": ["mamba", "attention"],
            "max_position_embeddings": 4096, "_name": "Infinity\" NaN",
            "time_step_limit": )" +
        value + "}";
    const ModelConfig config = parse_config(text, "config.json");
    return std::pair(config.recurrent->least_step, config.recurrent->most_step);
  };
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(limits("[0.0, Infinity]"), std::pair(0.0, infinity));
  EXPECT_EQ(limits(R"([0.25, {"__float__": "Infinity"}])"), std::pair(0.25, infinity));
  EXPECT_EQ(limits("[0.25, 4]"), std::pair(0.25, 4.0));
  EXPECT_EQ(limits("null"), std::pair(0.0, infinity));
  for (const char* wrong : {"[0.5]", "[2, 1]", "[-1, 1]", "[NaN, 1]", "[0, -Infinity]",
                            R"([0, {"__float__": "NaN"}])", "[0, {}]", "\"Infinity\""})
    EXPECT_THROW(limits(wrong), InputError) << wrong;
}

TEST(RecurrentLayers, RefuseWhatContradictsItselfOrIsUnknown) {
  const auto refused = [](const std::string& type, const std::string& keys) {
    return refusal_of<InputError>(type, keys);
  };
  EXPECT_THAT(refused("qwen3_5_text", R"({"linear_num_value_heads": 24})"),
              HasSubstr("linear_num_value_heads is 24, which linear_num_key_heads = 16 does not"));
  EXPECT_THAT(refused("qwen3_5_text", R"({"linear_conv_kernel_dim": 1})"),
              HasSubstr("linear_conv_kernel_dim is 1"));
  EXPECT_THAT(refused("qwen3_5_text", R"({"layer_types": ["linear_attention"]})"),
              HasSubstr("with 1 entries, but num_hidden_layers is 4"));
  EXPECT_THAT(refused("qwen3_5_text", R"({"full_attention_interval": 4, "layer_types":
                  ["full_attention", "linear_attention", "linear_attention", "full_attention"]})"),
              HasSubstr("full_attention_interval is 4, but layer_types says something else of "
                        "layer 0"));
  EXPECT_THAT(refused("granitemoehybrid", R"({"mamba_d_head": 32})"),
              HasSubstr("8 heads of 32 numbers of a recurrence are not 2 times the hidden size"));
  EXPECT_THAT(refused("granitemoehybrid", R"({"mamba_n_heads": 7})"), HasSubstr("7 heads of 18"));
  const auto unsupported = [](const std::string& type, const std::string& keys) {
    return refusal_of<Unsupported>(type, keys);
  };
  EXPECT_THAT(unsupported("qwen3_5_text", R"({"layer_types": ["linear_attention",
                  "sliding_attention", "linear_attention", "full_attention"]})"),
              HasSubstr("sliding_attention (layer 1) is not implemented"));
  EXPECT_THAT(unsupported("qwen3_5_text", R"({"num_hidden_layers": 3})"),
              HasSubstr("so no layer has attention"));
  EXPECT_THAT(unsupported("granitemoehybrid", R"({"layer_types": null})"),
              HasSubstr("so no layer has attention"));
  for (const char* keys : {R"({"attention_bias": true})", R"({"attn_output_gate": false})",
                           R"({"output_gate_type": "sigmoid"})", R"({"hidden_act": "gelu"})"})
    EXPECT_NE(unsupported("qwen3_5_text", keys), "") << keys;
  EXPECT_THAT(unsupported("granitemoehybrid", R"({"mamba_proj_bias": true})"),
              HasSubstr("mamba_proj_bias is true"));
}

}  // namespace
}  // namespace pecia::model
