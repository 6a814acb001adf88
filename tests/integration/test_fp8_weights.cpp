// SPDX-License-Identifier: Apache-2.0
/// Whole models with fp8 weights, on the CUDA backend's kernels: in every legal mode the
/// log-probabilities are those of fp32 weights, as near as E4M3's rounding lets them be.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <filesystem>

#include "lib/files/checkpoint/safetensors.hpp"
#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/prediction_difference.hpp"
#include "tests/support/replica.hpp"
#include "tests/support/safetensors_writer.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using parallel::AttentionExchange;
using Results = std::map<int64_t, batch::Finished>;

constexpr int64_t vocab = 96;  // of every checkpoint used here

/// By how much log-probabilities may be off, as a share of their own deviation. A number rounded to
/// E4M3 is off by 2⁻⁴ of itself at most, in the mean square by 0.024 (its place between two codes
/// being any), and a product of two such rows by √2 · 0.024. In a layer seven products follow each
/// other or are added, in two layers fourteen: √14 · √2 · 0.024 = 0.13 where each passes on what it
/// is given, and twice that where norms and softmax magnify it.
constexpr double tolerance = 0.26;

std::vector<Request> make_requests() {
  std::vector<Request> requests;
  int64_t row = 0;
  for (const int64_t length : {1, 37}) {
    requests.push_back(
        greedy_request(row, random_tokens(length, vocab, static_cast<uint64_t>(row)), 3));
    ++row;
  }
  const int64_t lengths[] = {20, 3, 7};
  requests.push_back(greedy_turns(io::Followup::fork, row, lengths, vocab, 0, 2));
  requests.back().turns.front().max_new_tokens = 0;
  return requests;
}

/// All of them together have no more rows than a GPU multiplies without rounding them to fp8.
std::vector<Request> make_short_requests() {
  return {greedy_request(0, random_tokens(5, vocab, 7), 3),
          greedy_request(1, random_tokens(9, vocab, 8), 2)};
}

double difference(const Results& found, const Results& wanted) {
  return prediction_difference(found, wanted, vocab);
}

ReplicaSettings settings_on(TestPlace place) {
  ReplicaSettings settings;
  settings.place = place;
  settings.logprobs = settings.prompt_logprobs = -1;
  return settings;
}

class Fp8 : public testing::TestWithParam<std::string> {
 protected:
  /// Emulated, unless the environment says that there are GPUs.
  static TestPlace place(int64_t number) {
    if (place_of_tests() != TestPlace::host) return place_of_tests();
    return number % 2 == 0 ? TestPlace::emulated_staged : TestPlace::emulated_nccl;
  }

  /// Whether products take the widths that the degrees leave; emulated ones take any.
  static bool has_widths(const model::ModelConfig& config, const parallel::Degrees& degrees) {
    if (place_of_tests() == TestPlace::host) return true;
    resources::Resources resources;
    resources.sp = degrees.sp, resources.tp = degrees.tp;
    try {
      resources::require_fp8_widths(config, resources);
    } catch (const InputError&) {
      return false;
    }
    return true;
  }

  Results with_fp32(const std::filesystem::path& model) {
    return run_requests(*alone_, model, make_requests(), settings_on(place(0)));
  }

  /// With fp8 weights, on one rank and on all of them in every mode.
  void expect_near(const std::filesystem::path& model, const Results& wanted) {
    const model::ModelConfig config = model::read_config(model);
    ReplicaSettings settings = settings_on(place(0));
    settings.quantize = model::Quantize::fp8;
    const Results one_rank = run_requests(*alone_, model, make_requests(), settings);
    const Results few_rows = run_requests(*alone_, model, make_short_requests(), settings);
    EXPECT_LE(difference(one_rank, wanted), tolerance);
    EXPECT_GT(difference(one_rank, wanted), 0x1p-8) << "nothing was rounded";
    int64_t number = 0;
    for (const parallel::ModePair& pair :
         parallel::legal_modes(all_->size(), resources::shape_of(config))) {
      if (!has_widths(config, pair.degrees)) continue;
      SCOPED_TRACE(fmt::format("{}, {} + {}", parallel::to_string(pair.degrees),
                               parallel::name_of(pair.prefill), parallel::name_of(pair.decode)));
      set_modes(settings, pair);
      settings.ring = number % 2 == 0 ? AttentionExchange::pass_kv : AttentionExchange::pass_q;
      settings.place = place(++number);
      const Results found = run_requests(*all_, model, make_requests(), settings);
      EXPECT_LE(difference(found, wanted), tolerance);
      // Where columns of o and down are cut, a rank's rows of them and of their inputs have scales
      // of their own, and ranks with few rows do not round these, so that this differs from one
      // rank's by as much as either from fp32.
      EXPECT_LE(difference(found, one_rank), tolerance);
      // Where nothing is cut, no row is rounded to fp8, and nothing is rounded on its way, all codes
      // are one rank's. Sums in another order round few inputs of products to the next bf16, whose
      // mean square would be 0.0015 if it were all. (A wire of bf16 is off by 0.002 to 0.011 here.
      // But where two experts of a mixture are near a tie, the other one may be chosen: off by 0.13.)
      const bool cut = pair.degrees.tp > 1 || pair.decode == parallel::DecodeMode::shift;
      ReplicaSettings exact = settings;
      exact.wire = DType::fp32;
      EXPECT_LE(difference(run_requests(*all_, model, make_short_requests(), exact), few_rows),
                cut ? tolerance : 0x1p-10);
    }
    EXPECT_GT(number, 0);
  }

  std::unique_ptr<comm::Communicator> all_ =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  std::unique_ptr<comm::Communicator> alone_ = all_->split(all_->rank(), 0);
};

TEST_P(Fp8, GivesWhatFp32GivesInEveryMode) {
  const std::filesystem::path model = golden(GetParam());
  expect_near(model, with_fp32(model));
}

/// On GPUs those that have the widths.
std::vector<std::string> models() {
  if (place_of_tests() != TestPlace::host) return {"glm-partial-rope"};
  return {"glm-partial-rope",       "llama-gqa-fp32",      "llama-biases",
          "internlm2-dynamic-bias", "qwen3moe-norm-dense", "gptoss-bf16"};
}
INSTANTIATE_TEST_SUITE_P(Families, Fp8, testing::ValuesIn(models()), name_of_model);

/// The model with rows of different sizes, so that a scale that is another row's shows: what
/// multiplies rows of up, v and k by powers of two divides the columns of down and o, and the rows
/// of q, that they meet. In fp32 it gives the same bits.
void write_uneven(const std::filesystem::path& folder, const std::filesystem::path& to) {
  const model::ModelConfig config = model::read_config(folder);
  const io::Checkpoint checkpoint(folder);
  const int64_t group = config.num_heads / config.num_kv_heads, head = config.head_dim;
  const auto power = [](int64_t i) { return std::ldexp(1.0f, static_cast<int>(i * 5 % 9) - 4); };
  // Both elements of a pair that RoPE turns have the same; so have all heads that share a KV head.
  const auto of_pair = [&](int64_t row) { return power(row / head + row % head % (head / 2)); };
  const auto kv_row = [&](int64_t query_row) {
    return query_row / head / group * head + query_row % head;
  };
  std::vector<NamedTensor> tensors;
  for (const std::string& name : checkpoint.names()) {
    const TensorView tensor = checkpoint.tensor(name);
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    std::vector<float> values;
    for (int64_t row = 0; row < tensor.rows(); ++row)
      for (int64_t i = 0; i < tensor.row_elements(); ++i) {
        const float factor = has("up_proj")     ? power(row)
                             : has("down_proj") ? 1 / power(i)
                             : has("v_proj")    ? power(row)
                             : has("o_proj")    ? 1 / power(kv_row(i))
                             : has("k_proj")    ? of_pair(row)
                             : has("q_proj")    ? 1 / of_pair(kv_row(row))
                                                : 1;
        values.push_back(
            factor * load_as_float(tensor.data(), tensor.dtype(), row * tensor.row_elements() + i));
      }
    std::vector<int64_t> shape = {tensor.rows()};
    if (tensor.rank() == 2) shape.push_back(tensor.size(1));
    tensors.push_back(float_tensor(name, DType::fp32, shape, values));
  }
  std::filesystem::copy_file(folder / "config.json", to / "config.json");
  write_safetensors(to / "model.safetensors", tensors);
}

using Fp8Uneven = Fp8;

TEST_P(Fp8Uneven, GivesWhatFp32GivesOfTheEvenModel) {
  const TempFolder folder;
  write_uneven(golden(GetParam()), folder.path());
  const Results even = with_fp32(golden(GetParam()));
  EXPECT_LE(difference(with_fp32(folder.path()), even), 1e-5);
  expect_near(folder.path(), even);
}

INSTANTIATE_TEST_SUITE_P(Families, Fp8Uneven, testing::Values("llama-rope-linear"), name_of_model);

}  // namespace
}  // namespace pecia::test
