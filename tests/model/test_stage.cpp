// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "lib/model/config/presets.hpp"
#include "lib/model/config/stage.hpp"

namespace pecia::model {
namespace {

using parallel::RowRange;
using testing::HasSubstr;

constexpr auto bf16 = DType::bf16;

const char* const presets[] = {"llama-3.1-8b", "llama-3-70b",        "smollm2-135m", "gemma-3-12b",
                               "gpt-oss-20b",  "qwen3-next-80b-a3b", "mixtral-8x7b"};

std::vector<ModelConfig> stages_of(const ModelConfig& config, int count) {
  std::vector<ModelConfig> stages;
  for (int index = 0; index < count; ++index) stages.push_back(stage_of(config, count, index));
  return stages;
}

TEST(StageOf, HasEachLayerOnceWithItsPattern) {
  for (const char* const preset : presets) {
    SCOPED_TRACE(preset);
    const ModelConfig config = config_of_preset_or_folder(preset);
    for (const int count : {2, 3, 4}) {
      int64_t next = 0;
      for (const ModelConfig& stage : stages_of(config, count)) {
        EXPECT_EQ(stage.stage.begin, next);
        EXPECT_EQ(stage.stage.end - stage.stage.begin, stage.layers);
        ASSERT_EQ(std::ssize(stage.pattern), stage.layers);
        for (int64_t layer = 0; layer < stage.layers; ++layer) {
          EXPECT_EQ(stage.pattern[layer], config.pattern[next + layer]);
          EXPECT_EQ(stage.mixer(layer), config.mixer(next + layer));
          EXPECT_EQ(stage.feed_forward(layer), config.feed_forward(next + layer));
          EXPECT_EQ(stage.heads(layer), config.heads(next + layer));
        }
        next += stage.layers;
      }
      EXPECT_EQ(next, config.layers);
    }
  }
}

TEST(StageOf, HasItsShareOfAllThatIsCounted) {
  for (const char* const preset : presets) {
    SCOPED_TRACE(preset);
    const ModelConfig config = config_of_preset_or_folder(preset);
    int64_t parameters = 0, keys = 0, states = 0;
    double flops = 0, pairs = 0;
    for (const ModelConfig& stage : stages_of(config, 3)) {
      parameters += stage.parameters();
      keys += stage.kv_bytes_per_token(bf16);
      states += stage.state_bytes();
      flops += stage.flops_per_token();
      pairs += stage.attention_flops_per_pair();
    }
    const int64_t twice = config.tied_embeddings ? config.vocab * config.hidden : 0;
    EXPECT_EQ(parameters, config.parameters() + twice) << "a tied embedding is in two stages";
    EXPECT_EQ(keys, config.kv_bytes_per_token(bf16));
    EXPECT_EQ(states, config.state_bytes());
    EXPECT_NEAR(flops, config.flops_per_token(), 1e-9 * flops);
    EXPECT_NEAR(pairs, config.attention_flops_per_pair(), 1e-9 * pairs);
  }
}

TEST(StageOf, OfOneIsTheModel) {
  const ModelConfig config = config_of_preset_or_folder("smollm2-135m");
  const ModelConfig one = stage_of(config, 1, 0);
  EXPECT_EQ(one.layers, config.layers);
  EXPECT_TRUE(one.stage.embeds() && one.stage.ends());
  EXPECT_EQ(to_text(one.stage), "");
  EXPECT_EQ(to_text(stage_of(config, 3, 1).stage),
            fmt::format("stage 1 (layers {} to {})", layers_of_stages(config, 3)[1].begin,
                        layers_of_stages(config, 3)[1].end - 1));
}

TEST(LayersOfStages, CountTheHeadForOneRowInEight) {
  for (const RowRange& layers : layers_of_stages(config_of_preset_or_folder("llama-3.1-8b"), 4))
    EXPECT_EQ(layers.size(), 8) << "the head is as much work as 2.4 layers";
  const std::vector<RowRange> stages =
      layers_of_stages(config_of_preset_or_folder("smollm2-135m"), 4);
  EXPECT_EQ(stages.back().size(), 7) << "and here as 8 of the 30, so it counts as one";
  for (const RowRange& layers : stages) EXPECT_LE(layers.size(), 8);
}

TEST(LayersOfStages, KeepLayersThatShareKeysTogether) {
  const ModelConfig config = [] {
    ModelConfig made = config_of_preset_or_folder("smollm2-135m");
    made.sharing_layers = 10, made.sharing_ffn = made.ffn;
    return made;
  }();
  for (const int count : {2, 3}) {
    const std::vector<RowRange> stages = layers_of_stages(config, count);
    EXPECT_LE(stages.back().begin, config.layers - 11) << "the layer whose keys are shared";
    EXPECT_EQ(stage_of(config, count, count - 1).sharing_layers, 10);
    EXPECT_EQ(stage_of(config, count, 0).sharing_layers, 0);
  }
}

std::string error_of(const ModelConfig& config, int count) {
  try {
    layers_of_stages(config, count);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(LayersOfStages, RefuseWhatLayersDoNotAllow) {
  ModelConfig config = config_of_preset_or_folder("smollm2-135m");
  EXPECT_THAT(error_of(config, 31), HasSubstr("use pp 30 or less"));
  config.sharing_layers = 28, config.sharing_ffn = config.ffn;
  EXPECT_THAT(error_of(config, 3), HasSubstr("use pp 2 or less"));
  config.second.width = 16;
  EXPECT_THAT(error_of(config, 2), HasSubstr("second embedding"));
  const ModelConfig hybrid = config_of_preset_or_folder("qwen3-next-80b-a3b");
  EXPECT_THAT(error_of(hybrid, 13), HasSubstr("a recurrent layer"));
  EXPECT_THAT(error_of(hybrid, 13), HasSubstr("use pp 12 or less"));
}

}  // namespace
}  // namespace pecia::model
