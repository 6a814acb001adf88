// SPDX-License-Identifier: Apache-2.0
/// What configurations say of layers with heads, keys, feed-forwards and embeddings of their own, and
/// what they may not say.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lib/base/core/error.hpp"
#include "lib/model/config/config.hpp"
#include "lib/model/layers/rotary.hpp"

namespace pecia::model {
namespace {

using nlohmann::json;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

/// `keys` are added, and null stays null.
ModelConfig gemma4(const std::string& keys = "{}") {
  json config = {{"model_type", "gemma4_text"},
                 {"hidden_size", 64},
                 {"intermediate_size", 96},
                 {"num_hidden_layers", 7}};
  config.update(json::parse(keys));
  return parse_config(config.dump(), "config.json");
}

template <typename E>
std::string refusal_of(const std::string& keys) {
  try {
    gemma4(keys);
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

TEST(Gemma4, TakesTransformersDefaults) {
  const ModelConfig config = gemma4();
  EXPECT_THAT(config.windows(), ElementsAre(512, 512, 512, 512, 512, 0, 0));
  EXPECT_EQ(config.num_heads, 8);
  EXPECT_EQ(config.heads(0), (KvHeads{4, 256}));
  EXPECT_EQ(config.heads(5), (KvHeads{4, 512}));
  EXPECT_EQ(config.heads(6), (KvHeads{4, 512}));  // the last layer has no window
  EXPECT_EQ(config.vocab, 262144);
  EXPECT_EQ(config.second.width, 256);
  EXPECT_EQ(config.sharing_layers, 0);
  EXPECT_EQ(config.logit_cap, 0);
  EXPECT_EQ(*config.attention_scale, 1.0f);
  EXPECT_EQ(config.norm_weight_offset, 0);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_TRUE(config.tied_embeddings && config.norms_values && config.scales_layers);
  EXPECT_FALSE(config.keys_give_values || config.experts);
  EXPECT_EQ(config.rope.scaling, RopeScaling::proportional);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.rope.rotary_dim, 512);
  EXPECT_EQ(config.rope.turning_share, 0.25);
  EXPECT_EQ(config.local_rope->scaling, RopeScaling::none);
  EXPECT_EQ(config.local_rope->theta, 1e4);
  EXPECT_EQ(config.local_rope->rotary_dim, 256);
  EXPECT_EQ(config.kv_bytes_per_token(DType::bf16), 2 * 2 * 4 * (5 * 256 + 2 * 512));
  EXPECT_EQ(config.window_bytes_per_token(DType::bf16), 2 * 2 * 4 * 5 * 256);
  EXPECT_EQ(config.kv_bytes_per_token(DType::bf16, 8), 2 * 2 * (5 * 256 + 2 * 512));
  EXPECT_EQ(config.attention_flops_per_pair(), 4.0 * 8 * (5 * 256 + 2 * 512));
}

TEST(Gemma4, HasAsManyKvHeadsAsSaidWhereKeysAreValues) {
  const std::string counts = R"("num_global_key_value_heads": 2, "global_head_dim": 128)";
  EXPECT_EQ(gemma4("{" + counts + "}").heads(5), (KvHeads{4, 128}));
  const ModelConfig config = gemma4("{" + counts + R"(, "attention_k_eq_v": true})");
  EXPECT_EQ(config.heads(5), (KvHeads{2, 128}));
  EXPECT_EQ(config.heads(0), (KvHeads{4, 256}));
  EXPECT_TRUE(config.has_values(0) && !config.has_values(5) && config.has_keys(5));
}

TEST(Gemma4, ReadsHeadsByLayer) {
  const ModelConfig config = gemma4(R"({"per_layer_config": {
      "5": {"head_dim": 128, "num_key_value_heads": 1},
      "6": {"head_dim": 128, "num_key_value_heads": 1}}})");
  EXPECT_EQ(config.heads(5), (KvHeads{1, 128}));
  EXPECT_EQ(config.heads(4), (KvHeads{4, 256}));
  EXPECT_THAT(refusal_of<Unsupported>(R"({"per_layer_config": {"5": {"head_dim": 128}}})"),
              HasSubstr("layer 6 has other heads"));
  EXPECT_THAT(refusal_of<Unsupported>(R"({"per_layer_config": {"0": {"head_dim": 128}}})"),
              HasSubstr("layer 0 has other heads"));
  EXPECT_THAT(refusal_of<Unsupported>(R"({"per_layer_config": {"5": {"sliding_window": 3}}})"),
              HasSubstr("per_layer_config.5.sliding_window"));
}

TEST(Gemma4, SharesKeysOfTheLastLayerOfTheSameKind) {
  const ModelConfig config = gemma4(R"({"num_kv_shared_layers": 3, "use_double_wide_mlp": true,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                      "full_attention", "sliding_attention", "sliding_attention",
                      "full_attention"]})");
  std::vector<int64_t> sources, columns;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    sources.push_back(config.keys_of(layer));
    columns.push_back(config.ffn_of(layer));
  }
  EXPECT_THAT(sources, ElementsAre(0, 1, 2, 3, 2, 2, 3));
  EXPECT_THAT(columns, ElementsAre(96, 96, 96, 96, 192, 192, 192));
  EXPECT_EQ(config.kv_bytes_per_token(DType::bf16), 2 * 2 * 4 * (2 * 256 + 2 * 512));
  EXPECT_EQ(gemma4(R"({"num_kv_shared_layers": 1})").ffn_of(6), 96);
  // Layer 5 is the first without a window.
  EXPECT_THAT(refusal_of<InputError>(R"({"num_kv_shared_layers": 2})"),
              HasSubstr("no layer before these keeps keys for layer 5"));
  EXPECT_THAT(refusal_of<InputError>(R"({"num_kv_shared_layers": 7})"), HasSubstr("layer 0"));
}

TEST(Gemma4, HasExpertsOnlyWhereTheyAreEnabled) {
  const std::string sizes = R"("num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 24)";
  EXPECT_FALSE(gemma4("{" + sizes + "}").experts);
  const ModelConfig config = gemma4("{" + sizes + R"(, "enable_moe_block": true})");
  EXPECT_EQ(config.experts->count, 8);
  EXPECT_EQ(config.experts->per_token, 2);
  EXPECT_EQ(config.experts->ffn, 24);
  EXPECT_EQ(config.experts->routing, kernels::Routing::of_chosen);
  EXPECT_TRUE(config.dense_beside_experts);
  EXPECT_EQ(config.num_layers(FeedForward::dense), 7);
  EXPECT_EQ(config.num_layers(FeedForward::experts), 7);
  EXPECT_EQ(config.common_ffn(), 24);
  EXPECT_THAT(refusal_of<InputError>(R"({"enable_moe_block": true, "num_experts": 8,
                                         "moe_intermediate_size": 24})"),
              HasSubstr("top_k_experts"));
}

TEST(Gemma4, RefusesWhatItLacks) {
  EXPECT_THAT(refusal_of<Unsupported>(R"({"use_bidirectional_attention": "all"})"),
              HasSubstr("use_bidirectional_attention"));
  EXPECT_EQ(gemma4(R"({"use_bidirectional_attention": "vision"})").layers, 7);
  EXPECT_THAT(refusal_of<Unsupported>(R"({"vocab_size_per_layer_input": 1000})"),
              HasSubstr("vocab_size_per_layer_input"));
  EXPECT_EQ(gemma4(R"({"vocab_size_per_layer_input": 1000, "hidden_size_per_layer_input": 0})")
                .second.width,
            0);
  EXPECT_EQ(gemma4(R"({"final_logit_softcapping": 30.0})").logit_cap, 30);
  EXPECT_THAT(refusal_of<InputError>(R"({"attention_k_eq_v": true,
                                         "num_global_key_value_heads": 3})"),
              HasSubstr("3 KV heads"));
}

/// The first quarter of all pairs (i, i + 4) of a head of 8 turns, as fast as in a whole head.
TEST(Gemma4, TurnsAShareOfThePairs) {
  const ModelConfig config = gemma4(R"({"global_head_dim": 8})");
  EXPECT_THAT(Rotary(config.rope).frequencies(1), ElementsAre(1.0f, 0.0f, 0.0f, 0.0f));
  const ModelConfig half = gemma4(R"({"global_head_dim": 8, "rope_parameters": {
      "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5,
                         "rope_theta": 10000.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}})");
  EXPECT_THAT(Rotary(half.rope).frequencies(1), ElementsAre(1.0f, 0.1f, 0.0f, 0.0f));
  EXPECT_EQ(half.local_rope->theta, 100);
  EXPECT_EQ(half.local_rope->rotary_dim, 256);
}

/// Counted by hand: two layers with a window and one that shares the first one's keys, and a full one.
TEST(Gemma4, CountsEveryTensor) {
  const ModelConfig config = gemma4(R"({"vocab_size": 100, "vocab_size_per_layer_input": 100,
      "num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32,
      "num_global_key_value_heads": 1, "attention_k_eq_v": true, "num_kv_shared_layers": 1,
      "hidden_size_per_layer_input": 8, "use_double_wide_mlp": true,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                      "full_attention"]})");
  const int64_t hidden = 64, small = 2 * hidden * 8 * 16, large = 2 * hidden * 8 * 32;  // q and o
  const int64_t windows = 2 * (small + 2 * hidden * 2 * 16 + 2 * 16);
  const int64_t full = large + hidden * 32 + 2 * 32, sharing = large + 32;
  const int64_t ffn = 3 * hidden * 96, second = 2 * 8 * hidden + hidden;
  EXPECT_EQ(config.parameters(), windows + full + sharing + 3 * ffn + 2 * ffn +
                                     4 * (4 * hidden + second + 1) + 4 * 8 * hidden + 8 +
                                     4 * 8 * 100 + hidden + 100 * hidden);
}

TEST(OtherFamilies, TurnNoShareOfPairs) {
  const json config = {{"model_type", "llama"},
                       {"vocab_size", 100},
                       {"hidden_size", 64},
                       {"intermediate_size", 96},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 4},
                       {"max_position_embeddings", 100},
                       {"rope_scaling", {{"rope_type", "proportional"}}}};
  EXPECT_THROW(parse_config(config.dump(), "config.json"), Unsupported);
}

}  // namespace
}  // namespace pecia::model
