// SPDX-License-Identifier: Apache-2.0
/// Larger goldens of the same oracle, where they are at hand: logits instead of log-probabilities,
/// prompts up to 1,500 tokens, a trained model among random ones.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/replica.hpp"

namespace pecia::test {
namespace {

using nlohmann::json;

constexpr double tolerance = 1e-4;  // of log-probabilities; the oracle's own noise is 2e-5

std::vector<std::filesystem::path> golden_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(PECIA_LOGIT_GOLDENS))
    if (entry.path().extension() == ".json" && entry.path().filename() != "tokenizer.json" &&
        json::parse(std::ifstream(entry.path()), nullptr, false).contains("checkpoint"))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<float> log_softmax(const std::vector<double>& logits) {
  double most = -INFINITY, sum = 0;
  for (const double logit : logits) most = std::max(most, logit);
  for (const double logit : logits) sum += std::exp(logit - most);
  std::vector<float> found;
  for (const double logit : logits)
    found.push_back(static_cast<float>(logit - most - std::log(sum)));
  return found;
}

ReplicaSettings settings_of(const parallel::ModePair& pair, parallel::AttentionExchange ring) {
  ReplicaSettings settings;
  set_modes(settings, pair);
  settings.ring = ring;
  settings.max_batch_tokens = 512;
  settings.logprobs = -1;
  settings.prompt_logprobs = 5;
  return settings;
}

void expect_met(const json& cases, const std::map<int64_t, batch::Finished>& results) {
  ASSERT_EQ(results.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(fmt::format("case {}", i));
    ASSERT_EQ(results.at(static_cast<int64_t>(i)).state, io::TurnState::done)
        << results.at(static_cast<int64_t>(i)).result.error;
    const io::TurnResult& found = results.at(static_cast<int64_t>(i)).result;
    EXPECT_EQ(found.tokens, cases[i]["greedy"].get<std::vector<int32_t>>());
    const auto expected = log_softmax(cases[i]["logits"].get<std::vector<double>>());
    ASSERT_GE(found.top_logprobs.size(), expected.size());
    EXPECT_TRUE(
        all_close(std::span(found.top_logprobs).first(expected.size()), expected, tolerance));
    if (!cases[i].contains("top5")) continue;
    // Differences of logits are differences of log-probabilities.
    const json& top5 = cases[i]["top5"];
    for (size_t position = 0; position + 1 < top5.size(); ++position)
      for (size_t rank = 0; rank < 5; ++rank) {
        const size_t at = (position + 1) * 5;
        EXPECT_EQ(found.prompt_top_tokens[at + rank], top5[position][rank][0].get<int32_t>());
        EXPECT_NEAR(found.prompt_top_logprobs[at + rank] - found.prompt_top_logprobs[at],
                    top5[position][rank][1].get<double>() - top5[position][0][1].get<double>(),
                    2 * tolerance);
      }
  }
}

struct LogitGolden : testing::TestWithParam<std::filesystem::path> {};

TEST_P(LogitGolden, IsMetInEveryMode) {
  const json golden = json::parse(std::ifstream(GetParam()));
  const auto folder = GetParam().parent_path() / golden["checkpoint"].get<std::string>();
  const json& cases = golden["cases"];
  std::vector<batch::Request> requests;
  for (size_t i = 0; i < cases.size(); ++i)
    requests.push_back(greedy_request(static_cast<int64_t>(i), cases[i]["prompt"],
                                      static_cast<int32_t>(cases[i]["greedy"].size())));
  const auto comm = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  const model::ModelConfig config = model::read_config(folder);
  auto ring = parallel::AttentionExchange::pass_kv, other = parallel::AttentionExchange::pass_q;
  for (const parallel::ModePair& pair :
       parallel::legal_modes(comm->size(), resources::shape_of(config))) {
    SCOPED_TRACE(fmt::format("{}, {}, {} + {}", GetParam().string(), to_string(pair.degrees),
                             parallel::name_of(pair.prefill), parallel::name_of(pair.decode)));
    ReplicaSettings settings = settings_of(pair, ring);
    // Where a cut goes through a group of codes, its numbers are rounded to 16 bits otherwise.
    settings.in_fp32 = config.quantization && settings.sp * settings.tp > 1;
    expect_met(cases, run_requests(*comm, folder, requests, settings));
    std::swap(ring, other);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LogitGolden, testing::ValuesIn(golden_files()));

}  // namespace
}  // namespace pecia::test
