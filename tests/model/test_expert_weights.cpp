// SPDX-License-Identifier: Apache-2.0
/// Weights of mixtures of experts: names, cuts, and what is refused.

#include <gmock/gmock.h>

#include "lib/core/error.hpp"
#include "tests/model/small_checkpoints.hpp"

namespace pecia::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t num_experts = 3;

/// small_model with a dense layer and then one of three experts of four columns.
ModelConfig small_mixture(Family family) {
  ModelConfig config = small_model(family);
  config.experts = {.count = num_experts, .per_token = 2, .ffn = 4};
  config.pattern = {{}, {.feed_forward = FeedForward::experts}};
  return config;
}

struct ExpertNames {
  std::string router, gate, up, down;
};
const ExpertNames qwen_names{"mlp.gate", "gate_proj", "up_proj", "down_proj"};

/// Expert e's gate begins with 40 + e, its up with 50 + e and its down with 60 + e.
CheckpointFile mixture_file(const std::string& block = "mlp",
                            const ExpertNames& names = qwen_names) {
  CheckpointFile file = llama_file();
  const std::string layer = "model.layers.1.";
  for (const std::string name : {"gate_proj", "up_proj", "down_proj"})
    file.tensors.erase(layer + "mlp." + name + ".weight");
  file.add(layer + names.router + ".weight", {num_experts, 4}, 30);
  for (int expert = 0; expert < num_experts; ++expert) {
    const std::string of = fmt::format("{}{}.experts.{}.", layer, block, expert);
    const auto begin = static_cast<float>(expert);
    file.add(of + names.gate + ".weight", {4, 4}, 40 + begin);
    file.add(of + names.up + ".weight", {4, 4}, 50 + begin);
    file.add(of + names.down + ".weight", {4, 4}, 60 + begin);
  }
  return file;
}

std::string refusal(const ModelConfig& config, const CheckpointFile& file) {
  try {
    load(config, file);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ExpertWeights, StandBesideDenseLayers) {
  const Weights weights = load(small_mixture(Family::qwen3_moe), mixture_file());
  EXPECT_THAT(first_of_parts(weights.layers[0].ffn.gate), ElementsAre(10));
  EXPECT_TRUE(weights.layers[0].mixture.experts.empty());
  const LayerWeights& layer = weights.layers[1];
  EXPECT_TRUE(layer.ffn.gate.parts.empty());
  EXPECT_THAT(first_of_parts(layer.mixture.router), ElementsAre(30));
  ASSERT_EQ(layer.mixture.experts.size(), 3u);
  EXPECT_THAT(first_of_parts(layer.mixture.experts[0].gate), ElementsAre(40));
  EXPECT_THAT(first_of_parts(layer.mixture.experts[2].up), ElementsAre(52));
  EXPECT_THAT(first_of_parts(layer.mixture.experts[1].down), ElementsAre(61));
}

TEST(ExpertWeights, HaveMixtralsNames) {
  const Weights weights =
      load(small_mixture(Family::mixtral),
           mixture_file("block_sparse_moe", {"block_sparse_moe.gate", "w1", "w3", "w2"}));
  const MixtureWeights& mixture = weights.layers[1].mixture;
  EXPECT_THAT(first_of_parts(mixture.experts[1].gate), ElementsAre(41));
  EXPECT_THAT(first_of_parts(mixture.experts[1].up), ElementsAre(51));
  EXPECT_THAT(first_of_parts(mixture.experts[1].down), ElementsAre(61));
}

TEST(ExpertWeights, AreMappedAndNotCopied) {
  const ModelConfig config = small_mixture(Family::qwen3_moe);
  const Weights weights = load(config, mixture_file());
  EXPECT_EQ(weights.converted_bytes(), 0);
  EXPECT_EQ(weights.resident_bytes(), config.parameters() * 4);
}

/// Values of neighbouring elements differ by one.
TEST(ExpertWeights, AreCutInEachExpertAndTheRouterStaysWhole) {
  const Weights half =
      load(small_mixture(Family::qwen3_moe), mixture_file(), {}, {.count = 2, .index = 1});
  const MixtureWeights& mixture = half.layers[1].mixture;
  expect_shape(mixture.router, 3, 4);
  expect_shape(mixture.experts[2].gate, 2, 4);
  EXPECT_THAT(first_of_parts(mixture.experts[2].gate), ElementsAre(42 + 8));
  EXPECT_THAT(values_of(mixture.experts[2].down),
              ElementsAre(64, 65, 68, 69, 72, 73, 76, 77));
}

TEST(ExpertWeights, ThatAreMissingAreNamed) {
  CheckpointFile file = mixture_file();
  file.tensors.erase("model.layers.1.mlp.experts.2.up_proj.weight");
  EXPECT_THAT(refusal(small_mixture(Family::qwen3_moe), file),
              HasSubstr("'model.layers.1.mlp.experts.2.up_proj.weight' is missing"));
}

TEST(ExpertWeights, BeyondTheConfigurationsAreNamed) {
  CheckpointFile file = mixture_file();
  file.add("model.layers.1.mlp.experts.3.up_proj.weight", {4, 4}, 1);
  EXPECT_THAT(refusal(small_mixture(Family::qwen3_moe), file),
              HasSubstr("'model.layers.1.mlp.experts.3.up_proj.weight' (shape [4, 4])"));
}

TEST(ExpertWeights, NeedARouterWithARowForEach) {
  CheckpointFile file = mixture_file();
  file.tensors.erase("model.layers.1.mlp.gate.weight");
  file.add("model.layers.1.mlp.gate.weight", {4, 4}, 30);
  EXPECT_THAT(refusal(small_mixture(Family::qwen3_moe), file),
              HasSubstr("'model.layers.1.mlp.gate.weight' has shape [4, 4], but config.json asks "
                        "for [3, 4]"));
}

TEST(ExpertWeights, OfAnotherWidthAreNamed) {
  CheckpointFile file = mixture_file();
  file.tensors.erase("model.layers.1.mlp.experts.0.down_proj.weight");
  file.add("model.layers.1.mlp.experts.0.down_proj.weight", {4, 6}, 60);
  EXPECT_THAT(refusal(small_mixture(Family::qwen3_moe), file),
              HasSubstr("'model.layers.1.mlp.experts.0.down_proj.weight' has shape [4, 6]"));
}

}  // namespace
}  // namespace pecia::model
