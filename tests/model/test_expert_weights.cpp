// SPDX-License-Identifier: Apache-2.0
/// Weights of mixtures of experts: names, cuts, and what is refused.

#include <gmock/gmock.h>

#include <cmath>

#include "lib/base/core/error.hpp"
#include "lib/model/weights/phantom_weights.hpp"
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
  EXPECT_THAT(values_of(mixture.experts[2].down), ElementsAre(64, 65, 68, 69, 72, 73, 76, 77));
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

/// A layer of gpt-oss with two experts of 64 columns and 32 hidden ones, in MXFP4.
ModelConfig small_gpt_oss() {
  ModelConfig config;
  config.family = Family::gpt_oss;
  config.vocab = 3, config.hidden = 32, config.ffn = 64, config.layers = 1;
  config.num_heads = 2, config.num_kv_heads = 1, config.head_dim = 4;
  config.experts = {.count = 2, .per_token = 1, .ffn = 64};
  config.pattern = {{.feed_forward = FeedForward::experts}};
  config.attention_bias = config.attention_output_bias = true;
  config.expert_bias = config.attention_sinks = true;
  config.quantization = StoredQuantization{};
  return config;
}

CheckpointFile gpt_oss_file() {
  CheckpointFile file;
  file.add("model.embed_tokens.weight", {3, 32}, 1);
  file.add("model.norm.weight", {32}, 2);
  file.add("lm_head.weight", {3, 32}, 3);
  const std::string layer = "model.layers.0.", experts = layer + "mlp.experts.";
  file.add(layer + "input_layernorm.weight", {32}, 4);
  file.add(layer + "post_attention_layernorm.weight", {32}, 5);
  file.add(layer + "self_attn.sinks", {2}, 6);
  for (const auto& [name, rows] : {std::pair{"q", 8}, {"k", 4}, {"v", 4}, {"o", 32}}) {
    const std::string projection = fmt::format("{}self_attn.{}_proj", layer, name);
    file.add(projection + ".weight", {rows, rows == 32 ? 8 : 32}, 7);
    file.add(projection + ".bias", {rows}, 8);
  }
  file.add(layer + "mlp.router.weight", {2, 32}, 9);
  file.add(layer + "mlp.router.bias", {2}, 10);
  file.add(experts + "gate_up_proj_bias", {2, 128}, 20);
  file.add(experts + "down_proj_bias", {2, 32}, 30);
  for (const auto& [name, rows, width] :
       {std::tuple{"gate_up_proj", 128, 1}, {"down_proj", 32, 2}}) {
    file.add(experts + name + "_blocks", {2, rows, width, 16}, 0, DType::uint8);
    file.add(experts + name + "_scales", {2, rows, width}, 0, DType::uint8);
    auto& blocks = file.tensors[experts + name + "_blocks"].values;
    auto& scales = file.tensors[experts + name + "_scales"].values;
    std::fill(blocks.begin(), blocks.end(), 0.0f);
    std::fill(scales.begin(), scales.end(), 127.0f);
  }
  auto& blocks = file.tensors[experts + "gate_up_proj_blocks"].values;
  auto& scales = file.tensors[experts + "gate_up_proj_scales"].values;
  blocks[0] = 0x72, blocks[16 + 15] = 0xF1;  // outputs 0 and 1 of the first expert
  scales[1] = 129;
  blocks[(128 + 2) * 16] = 0x0B;  // output 2 of the second
  scales[128 + 2] = 2;
  auto& of_down = file.tensors[experts + "down_proj_blocks"].values;
  of_down[16] = 0x43;  // inputs 32 and 33 of output 0
  file.tensors[experts + "down_proj_scales"].values[1] = 128;
  return file;
}

class PackedExperts : public testing::TestWithParam<bool> {
 protected:
  Weights load_part(parallel::WeightCut cut = {}, int row_parts = 1) {
    return load(small_gpt_oss(), gpt_oss_file(), {}, cut,
                {.kept = GetParam(), .row_parts = row_parts});
  }
  DType type() const { return GetParam() ? DType::mxfp4 : DType::bf16; }
};
INSTANTIATE_TEST_SUITE_P(KeptOrWidened, PackedExperts, testing::Bool());

TEST_P(PackedExperts, OfMxfp4AreCodesTimesPowersOfTwoAndGateAndUpTakeTurns) {
  const Weights weights = load_part();
  const MixtureWeights& mixture = weights.layers[0].mixture;
  const std::vector<float> gate = values_of(mixture.experts[0].gate);
  const std::vector<float> up = values_of(mixture.experts[0].up);
  EXPECT_EQ(mixture.experts[0].gate.parts[0].weight.dtype(), type());
  EXPECT_EQ(mixture.experts[0].down.parts[0].weight.dtype(), type());
  expect_shape(mixture.experts[1].up, 64, 32);
  expect_shape(mixture.experts[1].down, 32, 64);
  EXPECT_EQ(gate[0], 1);  // code 2, the low half of the first byte
  EXPECT_EQ(gate[1], 6);  // code 7
  EXPECT_EQ(gate[2], 0);
  EXPECT_EQ(up[30], 2);                                                  // code 1, times 4
  EXPECT_EQ(up[31], -24);                                                // code 15, times 4
  EXPECT_EQ(values_of(mixture.experts[1].gate)[32], -1.5f * 0x1p-125f);  // code 11, scale 2
  EXPECT_EQ(values_of(mixture.experts[0].down)[32], 3);                  // code 3, times 2
  EXPECT_EQ(values_of(mixture.experts[0].down)[33], 4);
  EXPECT_EQ(weights.layers[0].attention.sinks.rows(), 2);
  EXPECT_EQ(first(mixture.experts[1].up.parts[0].bias), 20 + 128 + 1);
  EXPECT_EQ(first(mixture.experts[1].down.parts[0].bias), 30 + 32);
  EXPECT_EQ(first(mixture.router.parts[0].bias), 10);
}

TEST_P(PackedExperts, AreReadAsFarAsARankNeedsThem) {
  const Weights half = load_part({.count = 2, .index = 1}, 2);
  const GatedFfnWeights& expert = half.layers[0].mixture.experts[0];
  EXPECT_EQ(expert.down.parts[0].weight.dtype(), type());
  expect_shape(expert.gate, 32, 32);
  expect_shape(expert.down, 32, 32);
  EXPECT_EQ(first(expert.gate.parts[0].bias), 20 + 64);
  EXPECT_FALSE(expert.down.parts[0].bias);
  EXPECT_EQ(values_of(expert.down)[1], 4);
}

TEST_P(PackedExperts, ThatAreDealtOutAreWholeAndHaveTheirBiases) {
  const parallel::WeightCut cut{.count = 2, .index = 1, .expert_ranks = 2, .expert_index = 1};
  const Weights whole = load_part();
  const Weights dealt = load_part(cut, 2);
  ASSERT_EQ(dealt.layers[0].mixture.experts.size(), 1u);
  const GatedFfnWeights &expert = dealt.layers[0].mixture.experts[0],
                        &wanted = whole.layers[0].mixture.experts[1];
  EXPECT_EQ(values_of(expert.gate), values_of(wanted.gate));
  EXPECT_EQ(values_of(expert.down), values_of(wanted.down));
  EXPECT_EQ(first(expert.down.parts[0].bias), 30 + 32);
  EXPECT_EQ(dealt.layers[0].attention.q.out(), whole.layers[0].attention.q.out() / 2);
}

/// A block of 32 inputs is in no way divided, though there are more ranks than blocks.
TEST(KeptExperts, ThatAreDealtOutStayCodesOnAnyNumberOfRanks) {
  const CodeUse cut = codes_kept(small_gpt_oss(), 4, false, 1, false);
  const CodeUse dealt = codes_kept(small_gpt_oss(), 4, false, 4, false);
  EXPECT_EQ(resident_code(small_gpt_oss(), MatrixKind::expert_down, cut), std::nullopt);
  EXPECT_EQ(resident_code(small_gpt_oss(), MatrixKind::expert_down, dealt), DType::mxfp4);
}

TEST(KeptExperts, AreMappedAndTakeFourBitsAndAByteForEach32) {
  const Weights kept = load(small_gpt_oss(), gpt_oss_file());
  const Weights widened = load(small_gpt_oss(), gpt_oss_file(), {}, {}, {.kept = false});
  constexpr int64_t numbers = 2 * 3 * 32 * 64, biases = 2 * (2 * 64 + 32);
  EXPECT_EQ(widened.resident_bytes() - kept.resident_bytes(), numbers * 2 - numbers / 32 * 17);
  EXPECT_EQ(kept.converted_bytes(), biases * 4);
  EXPECT_EQ(kept.layers[0].mixture.experts[0].gate.parts[0].weight.row_stride(), 2);
  EXPECT_EQ(types_text(kept), "fp32 with experts of mxfp4");
  EXPECT_EQ(types_text(widened), "fp32 with experts of bf16");
}

TEST(KeptExperts, WhoseBlocksACutDividesAreWidenedAlone) {
  const Weights half =  // which passes cut in two again
      load(small_gpt_oss(), gpt_oss_file(), {}, {.count = 2, .index = 1}, {.row_parts = 4});
  const GatedFfnWeights& expert = half.layers[0].mixture.experts[0];
  EXPECT_EQ(expert.gate.parts[0].weight.dtype(), DType::mxfp4);
  EXPECT_EQ(expert.down.parts[0].weight.dtype(), DType::bf16);
  EXPECT_EQ(values_of(expert.down)[1], 4);
  EXPECT_EQ(types_text(half), "fp32 with experts of mxfp4 and bf16");
}

TEST(KeptExperts, AreForeseenInTheirTypesAndShapes) {
  device::PhantomDevice device({"phantom", 0, 1, "", ""}, int64_t{1} << 30);
  const CodeUse dealt{.row_parts = 4, .whole_experts = true};
  for (const CodeUse& use :
       {CodeUse{}, {.row_parts = 2}, {.row_parts = 4}, {.kept = false}, dealt}) {
    parallel::WeightCut cut{.count = 2, .index = 1};
    if (use.whole_experts) cut.expert_ranks = 2, cut.expert_index = 1;
    const Weights real = load(small_gpt_oss(), gpt_oss_file(), {}, cut, use);
    const PhantomWeights foreseen(small_gpt_oss(), DType::bf16, cut, device, {}, use);
    const auto matrices_of = [](const WeightViews& weights) {
      std::vector<std::vector<int64_t>> found;
      weights.layers[0].for_each_matrix([&](MatrixKind kind, const LinearWeight& matrix) {
        if (role_of(kind).unit != CutUnit::expert_ffn) return;
        const LinearWeight::Part& part = matrix.parts.front();
        found.push_back({static_cast<int64_t>(part.weight.dtype()), part.weight.rows(),
                         part.weight.size(1), part.scales ? part.scales.elements() : 0});
      });
      return found;
    };
    EXPECT_EQ(matrices_of(foreseen), matrices_of(real)) << use.row_parts;
  }
}

TEST(KeptExperts, BecomeTheTypeThatIsAskedFor) {
  const Weights weights = load(small_gpt_oss(), gpt_oss_file(), DType::fp32);
  EXPECT_EQ(types_text(weights), "fp32");
  EXPECT_EQ(values_of(weights.layers[0].mixture.experts[0].up)[31], -24);
}

std::string damage(const CheckpointFile& file) {
  device::ThreadPool one_thread(1);
  try {
    load(small_gpt_oss(), file).check_finite(0, 1, one_thread);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(KeptExperts, ThatAreDamagedAreNamed) {
  const std::string experts = "model.layers.0.mlp.experts.";
  CheckpointFile nan = gpt_oss_file();
  nan.tensors[experts + "gate_up_proj_scales"].values[5] = 255;
  EXPECT_THAT(damage(nan),
              HasSubstr("gate_up_proj_scales' holds 255, which stands for NaN, at element 5"));
  CheckpointFile large = gpt_oss_file();
  large.tensors[experts + "down_proj_scales"].values[3] = 253;
  EXPECT_THAT(damage(large), HasSubstr("down_proj_scales' holds 253, with which numbers overflow"));
  EXPECT_EQ(damage(gpt_oss_file()), "accepted");
  CheckpointFile shape = gpt_oss_file();
  shape.tensors.erase(experts + "down_proj_scales");
  shape.add(experts + "down_proj_scales", {2, 31, 2}, 0, DType::uint8);
  EXPECT_THAT(refusal(small_gpt_oss(), shape), HasSubstr("down_proj_scales' has shape [2, 31, 2]"));
  CheckpointFile missing = gpt_oss_file();
  missing.tensors.erase(experts + "down_proj_scales");
  EXPECT_THAT(refusal(small_gpt_oss(), missing), HasSubstr("down_proj_scales' is missing"));
  CheckpointFile type = gpt_oss_file();
  type.tensors.erase(experts + "down_proj_blocks");
  type.add(experts + "down_proj_blocks", {2, 32, 2, 16});
  EXPECT_THAT(refusal(small_gpt_oss(), type), HasSubstr("codes of MXFP4 must be uint8"));
  CheckpointFile sinks = gpt_oss_file();
  sinks.tensors.erase("model.layers.0.self_attn.sinks");
  EXPECT_THAT(refusal(small_gpt_oss(), sinks), HasSubstr("self_attn.sinks' is missing"));
}

TEST(KeptExperts, DoNotHideASinkThatIsNaN) {
  CheckpointFile file = gpt_oss_file();
  file.tensors["model.layers.0.self_attn.sinks"].values[1] = std::nanf("");
  const Weights weights = load(small_gpt_oss(), file);
  device::ThreadPool one_thread(1);
  try {
    weights.check_finite(0, 1, one_thread);
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'model.layers.0.self_attn.sinks' holds nan at element 1"));
  }
}

}  // namespace
}  // namespace pecia::model
