// SPDX-License-Identifier: Apache-2.0
/// The same bits, whether layers with a window keep all tokens or those that the window reaches.

#include <gtest/gtest.h>
#include <mpi.h>

#include <filesystem>

#include "lib/model/attention/recent_slots.hpp"
#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/same_bits.hpp"

namespace pecia::test {
namespace {

using batch::Request;

constexpr int64_t vocab = 96;  // of every checkpoint used here

struct RecentTokens : testing::TestWithParam<std::tuple<const char*, DType>> {
  std::unique_ptr<comm::Communicator> all =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  std::filesystem::path model = golden(std::get<0>(GetParam()));
  int64_t window = model::read_config(model).widest_window().tokens;

  ReplicaSettings settings(int64_t max_batch_tokens, int64_t max_sequences) const {
    ReplicaSettings settings;
    settings.kv_dtype = std::get<1>(GetParam());
    settings.max_batch_tokens = max_batch_tokens;
    settings.max_sequences = max_sequences;
    settings.logprobs = -1;
    return settings;
  }

  /// With as few slots as are enough by the rule of a run.
  void expect_same(const std::vector<Request>& requests, ReplicaSettings settings) const {
    const auto wanted = run_requests(*all, model, requests, settings);
    const int instances = all->size() / settings.sp / settings.tp;
    const int64_t sequences = 2 * settings.max_sequences;
    settings.kv_recent_tokens =
        attention::RecentSlots::enough(window + attention::RecentSlots::margin, sequences,
                                       settings.max_batch_tokens / instances + 2 * sequences);
    int64_t most = 0;
    settings.most_recent_tokens = &most;
    expect_same_bits(run_requests(*all, model, requests, settings), wanted);
    EXPECT_GT(most, 0);
    EXPECT_LE(most, settings.kv_recent_tokens);
  }

  /// The grids of these ranks.
  std::vector<ReplicaSettings> grids(ReplicaSettings settings) const {
    std::vector<ReplicaSettings> all_grids{settings};
    const int size = all->size();
    if (size % 2 != 0) return all_grids;
    settings.sp = 2, all_grids.push_back(settings);
    settings.sp = 1, settings.tp = 2, all_grids.push_back(settings);
    return all_grids;
  }
};

TEST_P(RecentTokens, OfARaggedBatchWithLongAnswers) {
  std::vector<Request> requests;
  for (const int64_t length : {1, 17, 129, 700}) {
    const auto row = static_cast<int64_t>(requests.size());
    requests.push_back(
        greedy_request(row, random_tokens(length, vocab, 100 + static_cast<uint64_t>(row)),
                       static_cast<int32_t>(3 + row % 3 * 90)));
  }
  for (const ReplicaSettings& settings : grids(settings(72, 3))) expect_same(requests, settings);
  const ReplicaSettings in_blocks = grids(settings(600, 3)).back();  // of rows, with TP
  expect_same(requests, in_blocks);
  ReplicaSettings chunked = settings(200, 2);
  chunked.policy = job::Policy::chunked;
  expect_same(requests, chunked);
}

TEST_P(RecentTokens, OfChainsAndForks) {
  std::vector<Request> requests;
  int64_t row = 0;
  for (const io::Followup followup : {io::Followup::chain, io::Followup::fork})
    for (const int64_t length : {3, 420})
      requests.push_back(greedy_turns(followup, row, std::vector<int64_t>{length, 1, 180}, vocab, 7,
                                      followup == io::Followup::chain ? 70 : 5));
  ReplicaSettings settings = this->settings(96, 2);
  expect_same(requests, settings);
  settings.ring = parallel::AttentionExchange::pass_q;
  settings.max_batch_tokens = 4096;
  expect_same(requests, settings);
}

/// Models with a window in some layers, in all of them, and with sinks.
INSTANTIATE_TEST_SUITE_P(Goldens, RecentTokens,
                         testing::Values(std::tuple("gemma3-windows", DType::fp32),
                                         std::tuple("gemma3-windows", DType::fp8),
                                         std::tuple("gptoss-bf16", DType::fp32),
                                         std::tuple("afmoe-gates", DType::fp32),
                                         std::tuple("llama4-chunks", DType::fp32),
                                         std::tuple("mistral-window16", DType::fp32)),
                         [](const auto& param) {
                           std::string text = std::get<0>(param.param) + std::string("_") +
                                              std::string(name_of(std::get<1>(param.param)));
                           std::replace(text.begin(), text.end(), '-', '_');
                           return text;
                         });

}  // namespace
}  // namespace pecia::test
