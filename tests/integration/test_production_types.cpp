// SPDX-License-Identifier: Apache-2.0
/// Whole models as runs have them on GPUs, on the CUDA backend's own code: weights, keys and values
/// of bf16, heads of 64 and 128 elements on the tensor-core path, long pieces of prompts by the
/// attention library. The log-probabilities are those of products and a cache of fp32 on the CPU,
/// as near as bf16's rounding lets them be.

#include <gtest/gtest.h>
#include <mpi.h>

#include <nlohmann/json.hpp>

#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/kernels/emulator/launches.hpp"
#include "tests/kernels/emulator/plain_sdpa.hpp"
#include "tests/support/full_matrix.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/prediction_difference.hpp"
#include "tests/support/replica.hpp"
#include "tests/support/stored_matrices.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::test {
namespace {

using Results = std::map<int64_t, batch::Finished>;

constexpr int64_t vocab = 96, few_layers = 2, hidden = 128, ffn = 192, num_heads = 4,
                  num_kv_heads = 2;

/// By how much log-probabilities may be off, as a share of their own deviation. A number rounded to
/// bf16 is off by 2⁻⁸ of itself at most, in the mean square by 0.0015. In a layer the inputs of
/// seven products are rounded, q, k, v and the weights of attention, and in passes of many rows gate
/// and up: in two layers √26 · 0.0015 = 0.0076 where each passes on what it is given, and at most
/// 2.8 times that where norms and softmax magnify it. On several ranks attention's output, and the
/// parts and the sums of two products are rounded, too: √36 · 0.0015 = 0.009, at most 2.3 times.
constexpr double tolerance = 0.021;

/// A Llama whose heads have `head_dim` elements.
void write_model(const TempFolder& folder, int64_t head_dim, int64_t layers = few_layers,
                 Stored stored = Stored::bf16) {
  const int64_t width = stored == Stored::bf16 ? ffn : 2 * ffn;  // of whole groups
  folder.write("config.json", nlohmann::json{{"model_type", "llama"},
                                             {"architectures", {"LlamaForCausalLM"}},
                                             {"vocab_size", vocab},
                                             {"hidden_size", hidden},
                                             {"intermediate_size", width},
                                             {"num_hidden_layers", layers},
                                             {"num_attention_heads", num_heads},
                                             {"num_key_value_heads", num_kv_heads},
                                             {"head_dim", head_dim},
                                             {"hidden_act", "silu"},
                                             {"max_position_embeddings", 2048},
                                             {"rms_norm_eps", 1e-5},
                                             {"rope_theta", 10000.0},
                                             {"tie_word_embeddings", true},
                                             {"torch_dtype", "bfloat16"},
                                             {"quantization_config", quantization_of(stored)}}
                                  .dump());
  uint64_t seed = 1;
  std::vector<NamedTensor> tensors;
  const auto matrix = [&](const std::string& name, int64_t out, int64_t in) {
    add_matrix(tensors, stored, name, out, in, seed++);
  };
  const auto norm = [&](const std::string& name) {
    tensors.push_back(float_tensor(name, DType::bf16, {hidden}, std::vector<float>(hidden, 1)));
  };
  tensors.push_back(random_matrix("model.embed_tokens.weight", vocab, hidden, seed++));
  norm("model.norm.weight");
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    norm(prefix + "input_layernorm.weight");
    norm(prefix + "post_attention_layernorm.weight");
    matrix(prefix + "self_attn.q_proj", num_heads * head_dim, hidden);
    matrix(prefix + "self_attn.k_proj", num_kv_heads * head_dim, hidden);
    matrix(prefix + "self_attn.v_proj", num_kv_heads * head_dim, hidden);
    matrix(prefix + "self_attn.o_proj", hidden, num_heads * head_dim);
    matrix(prefix + "mlp.gate_proj", width, hidden);
    matrix(prefix + "mlp.up_proj", width, hidden);
    matrix(prefix + "mlp.down_proj", hidden, width);
  }
  write_safetensors(folder / "model.safetensors", tensors);
}

std::vector<batch::Request> make_requests(const std::vector<int64_t>& lengths) {
  std::vector<batch::Request> requests;
  for (const int64_t length : lengths) {
    const auto row = static_cast<int64_t>(requests.size());
    requests.push_back(
        greedy_request(row, random_tokens(length, vocab, static_cast<uint64_t>(row)), 4));
  }
  return requests;
}

class OfProduction : public testing::Test {
 protected:
  static ReplicaSettings of_all_logprobs() {
    ReplicaSettings settings;
    settings.logprobs = settings.prompt_logprobs = -1;
    return settings;
  }
  Results in_fp32(const std::vector<int64_t>& lengths) {
    ReplicaSettings settings = of_all_logprobs();
    settings.place = TestPlace::host;
    return run_requests(*alone_, model_.path(), make_requests(lengths), settings);
  }
  /// Emulated, unless the environment says that there are GPUs.
  ReplicaSettings of_production() {
    ReplicaSettings settings = of_all_logprobs();
    if (settings.place == TestPlace::host) settings.place = TestPlace::emulated_staged;
    settings.kv_dtype = DType::bf16;
    settings.as_stored = true;
    settings.sdpa = &sdpa_;
    return settings;
  }
  void expect_near(const Results& found, const Results& wanted) {
    const double off = prediction_difference(found, wanted, vocab);
    EXPECT_LE(off, tolerance);
    EXPECT_GT(off, 0x1p-14) << "nothing was rounded";
  }

  std::unique_ptr<comm::Communicator> all_ =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  std::unique_ptr<comm::Communicator> alone_ = all_->split(all_->rank(), 0);
  /// In the `step`-th modes of the ranks from mode `first` on (every_nth), with `wanted` of one rank.
  void expect_near_in_modes(const std::vector<int64_t>& lengths, const Results& wanted,
                            size_t first, size_t step) {
    const model::ModelConfig config = model::read_config(model_.path());
    const auto modes =
        every_nth(parallel::legal_modes(all_->size(), resources::shape_of(config)), first, step);
    int64_t number = 0;
    for (const parallel::ModePair& pair : modes) {
      SCOPED_TRACE(fmt::format("{}, {} + {}", parallel::to_string(pair.degrees),
                               parallel::name_of(pair.prefill), parallel::name_of(pair.decode)));
      ReplicaSettings settings = of_production();
      set_modes(settings, pair);
      settings.ring = number++ % 2 == 0 ? parallel::AttentionExchange::pass_kv
                                        : parallel::AttentionExchange::pass_q;
      if (settings.place == TestPlace::emulated_staged && number % 2 == 0)
        settings.place = TestPlace::emulated_nccl;
      expect_near(run_requests(*all_, model_.path(), make_requests(lengths), settings), wanted);
    }
    EXPECT_GT(number, 0);
  }

  TempFolder model_;
  SdpaCalls sdpa_;
};

class ProductionTypes : public OfProduction, public testing::WithParamInterface<int64_t> {
 protected:
  ProductionTypes() { write_model(model_, GetParam()); }
};

TEST_P(ProductionTypes, GiveWhatFp32GivesOnOneRank) {
  const std::vector<int64_t> lengths = {1, 400, 37};  // the second is the library's
  const Results wanted = in_fp32(lengths);
  ReplicaSettings settings = of_production();
  expect_near(run_requests(*alone_, model_.path(), make_requests(lengths), settings), wanted);
  if (settings.place == TestPlace::emulated_staged) {
    EXPECT_EQ(sdpa_.run.size(), static_cast<size_t>(few_layers));
  }
  settings.max_batch_tokens = 150;  // pieces too small for the library
  sdpa_.run.clear();
  expect_near(run_requests(*alone_, model_.path(), make_requests(lengths), settings), wanted);
  EXPECT_TRUE(sdpa_.run.empty());
}

TEST_P(ProductionTypes, GiveWhatFp32GivesInEveryMode) {
  if (all_->size() == 1) GTEST_SKIP() << "one rank has one mode";
  const std::vector<int64_t> lengths = {70, 9};
  const bool is_64 = GetParam() == 64;  // heads of 128 elements take every third mode
  expect_near_in_modes(lengths, in_fp32(lengths), 0, is_64 ? 1 : 3);
}

/// Passes of so many rows have rounded queries, which travel to the ranks that attend them.
TEST_P(ProductionTypes, GiveWhatFp32GivesWhereRoundedQueriesTravel) {
  if (all_->size() == 1) GTEST_SKIP() << "one rank sends none";
  const std::vector<int64_t> lengths = {300};
  ReplicaSettings settings = of_production();
  settings.sp = 2;  // four ranks are a ring of two
  expect_near(run_requests(*all_, model_.path(), make_requests(lengths), settings),
              in_fp32(lengths));
}

/// How tensors travel: in one way for heads of 64 elements and in the other for heads of 128, or in
/// both ways in the full matrix.
std::vector<TestPlace> places_of(TestPlace place, int64_t head_dim) {
  if (place != TestPlace::emulated_staged) return {place};
  return every_nth<TestPlace>({place, TestPlace::emulated_nccl}, head_dim / 64, 2);
}

/// Requests on as many ranks as they need, side by side.
TEST_P(ProductionTypes, GiveWhatFp32GivesInElasticTeams) {
  if (all_->size() == 1) GTEST_SKIP() << "one rank has one team";
  const std::vector<int64_t> lengths = {70, 9, 33, 120};
  const Results wanted = in_fp32(lengths);
  for (const TestPlace place : places_of(of_production().place, GetParam())) {
    ReplicaSettings settings = of_production();
    settings.place = place;
    settings.elastic = true;
    settings.max_batch_tokens = 32;
    settings.kv_tokens = (130 + all_->size() - 1) / all_->size() + 20;
    int narrow = 0, wide = 0;
    settings.on_plan = [&](const schedule::Plan& plan) {
      narrow += plan.teams.front().size() < all_->size();
      wide += plan.teams.front().workers() > 1;
    };
    expect_near(run_requests(*all_, model_.path(), make_requests(lengths), settings), wanted);
    EXPECT_GT(narrow, 0);
    EXPECT_GT(wide, 0);
  }
}

/// Prompts by levels of near and far tokens (csa), none of which is dropped.
TEST_P(ProductionTypes, GiveWhatFp32GivesByLevels) {
  if (all_->size() == 1) GTEST_SKIP() << "one rank has one level";
  const std::vector<int64_t> lengths = {70, 9, 333};
  const Results wanted = in_fp32(lengths);
  for (const TestPlace place : places_of(of_production().place, GetParam())) {
    ReplicaSettings settings = of_production();
    settings.place = place;
    settings.max_batch_tokens = 250;
    settings.levels_from = 24;
    settings.sparse = {{parallel::Geometry::disjoint, 0}, {}, {}};
    for (int rank = 0; rank < all_->size(); ++rank)  // two ranks on a server
      settings.places.push_back({"0", std::to_string(rank / 2), rank});
    int by_levels = 0;
    settings.on_plan = [&](const schedule::Plan& plan) {
      by_levels += plan.teams.front().ring == parallel::AttentionExchange::levels;
    };
    expect_near(run_requests(*all_, model_.path(), make_requests(lengths), settings), wanted);
    EXPECT_GT(by_levels, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(HeadsOf, ProductionTypes, testing::Values(64, 128),
                         [](const auto& head) { return std::to_string(head.param); });

/// A model with the latents of DeepSeek-V3, without experts, among which rounding might choose others.
class ProductionLatents : public OfProduction {
 protected:
  ProductionLatents() {
    constexpr int64_t rank = 512, nope = 128, rope = 64, value = 128;
    model_.write("config.json", nlohmann::json{{"model_type", "glm4_moe_lite"},
                                               {"architectures", {"Glm4MoeLiteForCausalLM"}},
                                               {"vocab_size", vocab},
                                               {"hidden_size", hidden},
                                               {"intermediate_size", ffn},
                                               {"num_hidden_layers", few_layers},
                                               {"num_attention_heads", num_heads},
                                               {"num_key_value_heads", num_heads},
                                               {"hidden_act", "silu"},
                                               {"max_position_embeddings", 2048},
                                               {"rms_norm_eps", 1e-5},
                                               {"rope_theta", 10000.0},
                                               {"tie_word_embeddings", true},
                                               {"torch_dtype", "bfloat16"},
                                               {"q_lora_rank", nullptr},
                                               {"kv_lora_rank", rank},
                                               {"qk_nope_head_dim", nope},
                                               {"qk_rope_head_dim", rope},
                                               {"v_head_dim", value},
                                               {"moe_intermediate_size", ffn},
                                               {"n_routed_experts", 4},
                                               {"num_experts_per_tok", 2},
                                               {"mlp_layer_types", {"dense", "dense"}}}
                                    .dump());
    uint64_t seed = 1;
    std::vector<NamedTensor> tensors;
    const auto matrix = [&](const std::string& name, int64_t out, int64_t in) {
      tensors.push_back(random_matrix(name + ".weight", out, in, seed++));
    };
    const auto norm = [&](const std::string& name, int64_t width) {
      tensors.push_back(
          float_tensor(name + ".weight", DType::bf16, {width}, std::vector<float>(width, 1)));
    };
    matrix("model.embed_tokens", vocab, hidden);
    norm("model.norm", hidden);
    for (int64_t layer = 0; layer < few_layers; ++layer) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      norm(prefix + "input_layernorm", hidden);
      norm(prefix + "post_attention_layernorm", hidden);
      matrix(prefix + "self_attn.q_proj", num_heads * (nope + rope), hidden);
      matrix(prefix + "self_attn.kv_a_proj_with_mqa", rank + rope, hidden);
      norm(prefix + "self_attn.kv_a_layernorm", rank);
      matrix(prefix + "self_attn.kv_b_proj", num_heads * (nope + value), rank);
      matrix(prefix + "self_attn.o_proj", hidden, num_heads * value);
      matrix(prefix + "mlp.gate_proj", ffn, hidden);
      matrix(prefix + "mlp.up_proj", ffn, hidden);
      matrix(prefix + "mlp.down_proj", hidden, ffn);
    }
    write_safetensors(model_ / "model.safetensors", tensors);
  }
};

/// The second prompt is expanded, and answers are absorbed. Latents in fp8 are off by up to 2⁻⁴ of
/// themselves, in the mean square by 0.027, once in a layer, which is four times as much as all that
/// bf16 rounds.
TEST_F(ProductionLatents, GiveWhatFp32GivesOnOneRank) {
  const std::vector<int64_t> lengths = {1, 200, 37};
  const Results wanted = in_fp32(lengths);
  ReplicaSettings settings = of_production();
  expect_near(run_requests(*alone_, model_.path(), make_requests(lengths), settings), wanted);
  settings.kv_dtype = DType::fp8;
  const Results by_fp8 = run_requests(*alone_, model_.path(), make_requests(lengths), settings);
  EXPECT_LE(prediction_difference(by_fp8, wanted, vocab), 5 * tolerance);
}

TEST_F(ProductionLatents, GiveWhatFp32GivesInEveryMode) {
  if (all_->size() == 1) GTEST_SKIP() << "one rank has one mode";
  const std::vector<int64_t> lengths = {70, 9};
  expect_near_in_modes(lengths, in_fp32(lengths), 0, 2);
}

/// What a layer adds to a run on one rank.
class ProductionLayers : public OfProduction {
 protected:
  void SetUp() override {
    if (all_->size() > 1 || place_of_tests() != TestPlace::host)
      GTEST_SKIP() << "it is counted once";
  }
  /// `count` runs a model and counts.
  static int64_t added_by_layer(const std::function<int64_t(const TempFolder& model)>& count) {
    constexpr int64_t more_layers = 4;
    const auto counted = [&](int64_t layers) {
      const TempFolder model;
      write_model(model, 64, layers);
      return count(model);
    };
    const int64_t added = counted(more_layers) - counted(few_layers);
    EXPECT_EQ(added % (more_layers - few_layers), 0);
    return added / (more_layers - few_layers);
  }
  /// Pieces of work in steps.
  int64_t pieces_of_layer(const std::vector<batch::Request>& requests) {
    return added_by_layer([&](const TempFolder& model) {
      device::GraphCounts counts;
      ReplicaSettings settings = of_production();
      settings.logprobs = settings.prompt_logprobs = 0;
      settings.graphs = &counts;
      run_requests(*alone_, model.path(), requests, settings);
      return counts.pieces;
    });
  }
};

/// After a long prompt: two norms, products for q with k and v, o, gate with up and their
/// activation, and down, the rotation and storing of heads, and attention.
TEST_F(ProductionLayers, HaveFewPiecesOfWorkInADecodeStep) {
  constexpr int64_t new_tokens = 6,
                    steps = new_tokens - 1;  // a prompt has too many rows for a step
  EXPECT_EQ(pieces_of_layer({greedy_request(0, random_tokens(400, vocab, 1), new_tokens)}),
            8 * steps);
}

/// With more rows than our kernels multiply, gate and up are cuBLASLt's product, and their activation
/// is a ninth piece.
TEST_F(ProductionLayers, HaveOnePieceMoreInAStepOfMoreRows) {
  constexpr int64_t new_tokens = 3;
  for (const int64_t rows : {17, 64}) {
    std::vector<batch::Request> requests;
    for (int64_t row = 0; row < rows; ++row)
      requests.push_back(greedy_request(row, random_tokens(1, vocab, uint64_t(row)), new_tokens));
    EXPECT_EQ(pieces_of_layer(requests), 9 * new_tokens) << rows << " rows";
  }
}

/// The kernels of a prompt's pass, where x is rounded to fp8 once for q, k and v, for o, for gate
/// with up, and for down. The other kernels are two norms, one that rotates and stores, attention, and
/// the activation.
TEST_F(ProductionLayers, RoundEveryInputToFp8OnceInAPrompt) {
  const auto launches = [&](const TempFolder& model) {
    ReplicaSettings settings = of_production();
    settings.as_stored = false;
    settings.quantize = model::Quantize::fp8;
    settings.logprobs = settings.prompt_logprobs = 0;
    const int64_t before = emulator::num_launches();
    run_requests(*alone_, model.path(), {greedy_request(0, random_tokens(150, vocab, 1), 1)},
                 settings);
    return emulator::num_launches() - before;
  };
  constexpr int64_t of_loading = 7;  // one for each matrix
  EXPECT_EQ(added_by_layer(launches), of_loading + 9);
}

/// Matrices that stay codes on GPUs, in prompts of more and fewer rows than are widened in registers,
/// with products of their numbers in fp32.
class ProductionCodes : public OfProduction, public testing::WithParamInterface<Stored> {
 protected:
  ProductionCodes() { write_model(model_, 64, few_layers, GetParam()); }
};

TEST_P(ProductionCodes, GiveWhatTheirNumbersGive) {
  const std::vector<int64_t> lengths = {1, 80, 37};
  if (all_->size() > 2) GTEST_SKIP() << "codes are cut over ranks as numbers of bf16 are";
  const Results wanted = in_fp32(lengths);
  if (all_->size() > 1)  // each form of codes in other modes
    return expect_near_in_modes(lengths, wanted, static_cast<size_t>(GetParam()), 4);
  ReplicaSettings settings = of_production();
  const Results found = run_requests(*alone_, model_.path(), make_requests(lengths), settings);
  expect_near(found, wanted);
  settings.max_batch_tokens = 20;
  expect_near(run_requests(*alone_, model_.path(), make_requests(lengths), settings), wanted);
  settings.widened = true;  // the same as numbers of bf16
  const Results as_numbers = run_requests(*alone_, model_.path(), make_requests(lengths), settings);
  EXPECT_GT(prediction_difference(found, as_numbers, vocab), 0) << "codes were widened at load";
}

INSTANTIATE_TEST_SUITE_P(StoredAs, ProductionCodes,
                         testing::Values(Stored::int8, Stored::fp8_rows, Stored::fp8_blocks,
                                         Stored::int4_by_32, Stored::int4_by_64,
                                         Stored::int4_by_128, Stored::gptq, Stored::awq,
                                         Stored::nvfp4),
                         [](const auto& stored) { return name_of(stored.param); });

/// Experts of MXFP4 are the same numbers in bf16, so the same products are rounded alike, and rows
/// choose the same experts.
TEST_F(OfProduction, ExpertsOfMxfp4GiveWhatTheirNumbersGive) {
  const std::filesystem::path folder = golden("gptoss-mxfp4");
  const model::ModelConfig config = model::read_config(folder);
  const auto run = [&](comm::Communicator& comm, const ReplicaSettings& settings) {
    std::vector<batch::Request> requests;
    for (const int64_t length : {1, 70, 5})
      requests.push_back(
          greedy_request(std::ssize(requests), random_tokens(length, config.vocab, 3), 3));
    return run_requests(comm, folder, requests, settings);
  };
  ReplicaSettings as_numbers = of_production();
  as_numbers.sdpa = nullptr;
  as_numbers.widened = true;
  const Results wanted = run(*alone_, as_numbers);
  int64_t compared = 0;
  for (const parallel::ModePair& pair :
       parallel::legal_modes(all_->size(), resources::shape_of(config))) {
    SCOPED_TRACE(fmt::format("{}, {} + {}", parallel::to_string(pair.degrees),
                             parallel::name_of(pair.prefill), parallel::name_of(pair.decode)));
    if (pair.degrees.cp > 1) continue;  // whose rounding is another
    ReplicaSettings settings = of_production();
    settings.sdpa = nullptr;
    set_modes(settings, pair);
    const Results found = run(*all_, settings);
    const double off = prediction_difference(found, wanted, config.vocab);
    EXPECT_LE(off, tolerance);
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace pecia::test
