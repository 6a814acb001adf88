// SPDX-License-Identifier: Apache-2.0
/// Dense families in the types that runs have on GPUs against transformers, on the CUDA backend's own
/// code: weights as they are stored, keys and values of bf16. The goldens are those of tests/goldens,
/// or those that scripts/pecia_tools/gpu/goldens.py makes of a larger model on a GPU.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/support/full_matrix.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/replica.hpp"

namespace pecia::test {
namespace {

using nlohmann::json;

/// As in test_production_types: a number rounded to bf16 is off by 0.0015 in the mean square, eleven
/// roundings of a layer add up, and norms and softmax magnify them to at most three times that
/// (llama-mha-tied to twice). Two of the eleven are of q and k, whose scores are steeper where their
/// scale is not head_dim^-½, as in Gemma 4: by that ratio their roundings count more. An oracle that
/// computes in bf16 rounds what it adds, too: some twenty times more in a layer, which makes √3 of
/// it, and twice that for the difference of two such models.
double tolerance(const model::ModelConfig& config, bool oracle_is_bf16) {
  const double usual = 1 / std::sqrt(static_cast<double>(config.widest_heads().dim));
  const double steepness = std::max(1.0, config.attention_scale.value_or(usual) / usual);
  const double roundings = 9 + 2 * steepness * steepness;
  const double own = 3 * std::sqrt(roundings * static_cast<double>(config.layers)) * 0.0015;
  return oracle_is_bf16 ? 2 * std::sqrt(3.0) * own : own;
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(goldens_folder())) {
    if (!std::filesystem::exists(entry.path() / "golden.json") ||
        !takes_narrow_types(entry.path().filename()))
      continue;
    // Rounding may choose other experts.
    if (!model::read_config(entry.path()).experts) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Sums over predictions that have one thing in common.
class Errors {
 public:
  void add(std::span<const float> found, const std::vector<float>& wanted) {
    ASSERT_GE(found.size(), wanted.size());
    double mean = 0;
    for (const float value : wanted) mean += value / static_cast<double>(wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      error_ += std::pow(double{found[i]} - wanted[i], 2);
      deviation_ += std::pow(wanted[i] - mean, 2);
    }
  }
  /// √(Σ error² / Σ deviation²); NaN where something is no number.
  double share() const { return std::sqrt(error_ / deviation_); }

 private:
  double error_ = 0, deviation_ = 0;
};

struct NarrowGolden : testing::TestWithParam<std::string> {};

TEST_P(NarrowGolden, IsMetAsNearAsRoundingLets) {
  const std::filesystem::path folder = golden(GetParam());
  const json file = json::parse(std::ifstream(folder / "golden.json"));
  std::vector<batch::Request> requests;
  for (const json& one : file["cases"])
    requests.push_back(
        greedy_request(static_cast<int64_t>(requests.size()), one["prompt"],
                       static_cast<int32_t>(std::max<size_t>(1, one["greedy"].size()))));
  ReplicaSettings settings;
  if (settings.place == TestPlace::host) settings.place = TestPlace::emulated_staged;
  settings.kv_dtype = DType::bf16;
  settings.as_stored = true;
  settings.logprobs = -1;
  settings.prompt_logprobs = 1;
  const auto comm = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));

  const auto results = run_requests(*comm, folder, std::move(requests), settings);

  Errors errors;
  for (size_t i = 0; i < file["cases"].size(); ++i) {
    const json& wanted = file["cases"][i];
    const batch::Finished& found = results.at(static_cast<int64_t>(i));
    ASSERT_EQ(found.state, io::TurnState::done) << found.result.error;
    errors.add(found.result.top_logprobs, wanted["logprobs"]);  // after the prompt
    const auto prompt = wanted["prompt_logprobs"].get<std::vector<float>>();
    if (prompt.empty()) continue;
    errors.add(std::span(found.result.prompt_logprobs).subspan(1), prompt);
    // A greedy answer is the same up to the first two tokens that rounding cannot tell apart.
    const auto tokens = wanted["greedy"].get<std::vector<int32_t>>();
    const auto logprobs = wanted["greedy_logprobs"].get<std::vector<float>>();
    size_t same = 0;
    while (same < tokens.size() && found.result.tokens[same] == tokens[same]) ++same;
    errors.add(std::span(found.result.token_logprobs).first(same),
               {logprobs.begin(), logprobs.begin() + static_cast<int64_t>(same)});
  }
  const bool oracle_is_bf16 = file.value("dtype", "float32") == "bfloat16";
  RecordProperty("share", std::to_string(errors.share()));
  EXPECT_LE(errors.share(), tolerance(model::read_config(folder), oracle_is_bf16));
}

INSTANTIATE_TEST_SUITE_P(EveryFamily, NarrowGolden, testing::ValuesIn(names()), name_of_model);

}  // namespace
}  // namespace pecia::test
