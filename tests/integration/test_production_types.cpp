// SPDX-License-Identifier: Apache-2.0
/// Whole models as runs have them on GPUs, on the CUDA backend's own code: weights, keys and values
/// of bf16, heads of 64 and 128 elements on the tensor-core path, long pieces of prompts by the
/// attention library. The log-probabilities are those of products and a cache of fp32 on the CPU,
/// as near as bf16's rounding lets them be.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/comm/mpi_communicator.hpp"
#include "lib/core/random.hpp"
#include "lib/model/config.hpp"
#include "lib/resources/resources.hpp"
#include "tests/kernels/emulator/plain_sdpa.hpp"
#include "tests/support/prediction_difference.hpp"
#include "tests/support/replica.hpp"
#include "tests/support/safetensors_writer.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::test {
namespace {

using Results = std::map<int64_t, schedule::Finished>;

constexpr int64_t vocab = 96, few_layers = 2, hidden = 128, ffn = 192, num_heads = 4,
                  num_kv_heads = 2;

/// By how much log-probabilities may be off, as a share of their own deviation. A number rounded to
/// bf16 is off by 2⁻⁸ of itself at most, in the mean square by 0.0015. In a layer the inputs of
/// seven products are rounded, and q, k, v and the weights of attention: in two layers √22 · 0.0015
/// = 0.007 where each passes on what it is given, and at most three times that where norms and
/// softmax magnify it.
constexpr double tolerance = 0.021;

NamedTensor random_matrix(const std::string& name, int64_t out, int64_t in, uint64_t seed) {
  std::vector<float> values(out * in);
  for (size_t i = 0; i < values.size(); ++i)  // of deviation 1/√in
    values[i] = static_cast<float>((uniform(seed, i) - 0.5) * std::sqrt(12.0 / double(in)));
  return float_tensor(name, DType::bf16, {out, in}, values);
}

/// A Llama of bf16 whose heads have `head_dim` elements.
void write_model(const TempFolder& folder, int64_t head_dim, int64_t layers = few_layers) {
  folder.write("config.json", nlohmann::json{{"model_type", "llama"},
                                             {"architectures", {"LlamaForCausalLM"}},
                                             {"vocab_size", vocab},
                                             {"hidden_size", hidden},
                                             {"intermediate_size", ffn},
                                             {"num_hidden_layers", layers},
                                             {"num_attention_heads", num_heads},
                                             {"num_key_value_heads", num_kv_heads},
                                             {"head_dim", head_dim},
                                             {"hidden_act", "silu"},
                                             {"max_position_embeddings", 2048},
                                             {"rms_norm_eps", 1e-5},
                                             {"rope_theta", 10000.0},
                                             {"tie_word_embeddings", true},
                                             {"torch_dtype", "bfloat16"}}
                                  .dump());
  uint64_t seed = 1;
  std::vector<NamedTensor> tensors;
  const auto matrix = [&](const std::string& name, int64_t out, int64_t in) {
    tensors.push_back(random_matrix(name, out, in, seed++));
  };
  const auto norm = [&](const std::string& name) {
    tensors.push_back(float_tensor(name, DType::bf16, {hidden}, std::vector<float>(hidden, 1)));
  };
  matrix("model.embed_tokens.weight", vocab, hidden);
  norm("model.norm.weight");
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    norm(prefix + "input_layernorm.weight");
    norm(prefix + "post_attention_layernorm.weight");
    matrix(prefix + "self_attn.q_proj.weight", num_heads * head_dim, hidden);
    matrix(prefix + "self_attn.k_proj.weight", num_kv_heads * head_dim, hidden);
    matrix(prefix + "self_attn.v_proj.weight", num_kv_heads * head_dim, hidden);
    matrix(prefix + "self_attn.o_proj.weight", hidden, num_heads * head_dim);
    matrix(prefix + "mlp.gate_proj.weight", ffn, hidden);
    matrix(prefix + "mlp.up_proj.weight", ffn, hidden);
    matrix(prefix + "mlp.down_proj.weight", hidden, ffn);
  }
  write_safetensors(folder / "model.safetensors", tensors);
}

std::vector<schedule::Request> make_requests(const std::vector<int64_t>& lengths) {
  std::vector<schedule::Request> requests;
  for (const int64_t length : lengths) {
    const auto row = static_cast<int64_t>(requests.size());
    requests.push_back(
        greedy_request(row, random_tokens(length, vocab, static_cast<uint64_t>(row)), 4));
  }
  return requests;
}

class ProductionTypes : public testing::TestWithParam<int64_t> {
 protected:
  ProductionTypes() { write_model(model_, GetParam()); }

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
  TempFolder model_;
  SdpaCalls sdpa_;
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
  const Results wanted = in_fp32(lengths);
  const model::ModelConfig config = model::read_config(model_.path());
  int64_t number = 0;
  for (const parallel::ModePair& pair :
       parallel::legal_modes(all_->size(), resources::shape_of(config))) {
    SCOPED_TRACE(fmt::format("{}, {} + {}", parallel::to_string(pair.degrees),
                             parallel::name_of(pair.prefill), parallel::name_of(pair.decode)));
    ReplicaSettings settings = of_production();
    settings.sp = pair.degrees.sp;
    settings.tp = pair.degrees.tp;
    settings.ep = pair.degrees.ep;
    settings.modes = parallel::pass_modes(pair, 6);
    settings.ring = number++ % 2 == 0 ? parallel::Ring::pass_kv : parallel::Ring::pass_q;
    if (settings.place == TestPlace::emulated_staged && number % 2 == 0)
      settings.place = TestPlace::emulated_nccl;
    expect_near(run_requests(*all_, model_.path(), make_requests(lengths), settings), wanted);
  }
  EXPECT_GT(number, 0);
}

/// The pieces of work that a layer of a decode step adds, on one rank after a long prompt. They are
/// two norms, products for q with k and v, o, gate with up, and down, the rotation and storing of
/// heads, attention, and the gated activation.
TEST_P(ProductionTypes, ADecodeLayerHasFewPiecesOfWork) {
  if (all_->size() > 1 || GetParam() != 64 || place_of_tests() != TestPlace::host)
    GTEST_SKIP() << "it is counted once";
  constexpr int64_t new_tokens = 6, more_layers = 4;
  const auto pieces = [&](int64_t layers) {
    const TempFolder model;
    write_model(model, GetParam(), layers);
    device::GraphCounts counts;
    ReplicaSettings settings = of_production();
    settings.logprobs = settings.prompt_logprobs = 0;
    settings.graphs = &counts;
    run_requests(*alone_, model.path(),
                 {greedy_request(0, random_tokens(400, vocab, 1), new_tokens)}, settings);
    return counts.pieces;
  };
  constexpr int64_t steps = new_tokens - 1;  // the prompt has too many rows for a step
  EXPECT_EQ(pieces(more_layers) - pieces(few_layers), 9 * steps * (more_layers - few_layers));
}

INSTANTIATE_TEST_SUITE_P(HeadsOf, ProductionTypes, testing::Values(64, 128),
                         [](const auto& head) { return std::to_string(head.param); });

}  // namespace
}  // namespace pecia::test
