// SPDX-License-Identifier: Apache-2.0
/// `reproducible: layout`: every bit of a result is that of one rank alone with the request alone,
/// on a ring of every number of ranks that divides 8 and in every batch. The other layouts are in
/// test_layout_modes.cpp.

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>

#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/full_matrix.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/same_bits.hpp"

namespace pecia::test {
namespace {

using batch::Finished;
using batch::Request;
using batch::Turn;
using Results = std::map<int64_t, Finished>;

constexpr int64_t vocab = 96;  // of every checkpoint used here

const std::vector<std::string> models = {"llama-gqa-fp32", "llama-mqa", "mistral-window16",
                                         "qwen3-qknorm-tied"};
constexpr std::array kv_types = {DType::fp32, DType::bf16, DType::fp8};

/// Each model with each type of keys is tried on one or two of the numbers of ranks 1, 2, 4 and 8, so
/// that each type meets all of them; on all in the full matrix. Eight ranks take longest.
bool is_tried(const std::string& model, DType kv_dtype, int ranks) {
  const auto m = std::ranges::find(models, model) - models.begin();
  const auto d = std::ranges::find(kv_types, kv_dtype) - kv_types.begin();
  const int number = std::bit_width(static_cast<unsigned>(ranks)) - 1;
  return full_matrix() || (m + d - number + 4) % 4 < (ranks == 8 ? 1 : 2);
}

struct Layouts : testing::TestWithParam<std::tuple<std::string, DType>> {
  void SetUp() override {
    if (!is_tried(std::get<0>(GetParam()), std::get<1>(GetParam()), all->size()))
      GTEST_SKIP() << "other numbers of ranks try it";
  }

  std::unique_ptr<comm::Communicator> all =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  std::filesystem::path model = golden(std::get<0>(GetParam()));

  /// Whole distributions, so that every logit counts.
  ReplicaSettings settings(int64_t max_batch_tokens) const {
    ReplicaSettings settings;
    settings.layout_invariant = true;
    settings.kv_dtype = std::get<1>(GetParam());
    settings.max_batch_tokens = max_batch_tokens;
    settings.logprobs = settings.prompt_logprobs = -1;
    return settings;
  }

  Results one_by_one(const std::vector<Request>& requests, const ReplicaSettings& settings) const {
    return run_one_by_one(*all, model, requests, settings);
  }

  /// In both orders, with many and with few sequences at a time.
  void expect_same_in_every_batch(const std::vector<Request>& requests,
                                  const ReplicaSettings& like) const {
    const Results wanted = one_by_one(requests, like);
    for (const bool backwards : {false, true}) {
      SCOPED_TRACE(fmt::format("{} tokens a pass, {}", like.max_batch_tokens,
                               backwards ? "backwards, 3 at a time" : "in order"));
      auto ordered = requests;
      if (backwards) std::reverse(ordered.begin(), ordered.end());
      ReplicaSettings settings = like;
      settings.max_sequences = backwards ? 3 : 64;
      expect_same_bits(run_requests(*all, model, ordered, settings), wanted);
    }
  }
};

TEST_P(Layouts, OfARaggedBatchGiveTheSameBits) {
  std::vector<Request> requests;
  for (const int64_t length : {1, 2, 15, 16, 17, 37, 300, 1100}) {
    const auto row = static_cast<int64_t>(requests.size());
    requests.push_back(
        greedy_request(row, random_tokens(length, vocab, 100 + static_cast<uint64_t>(row)),
                       static_cast<int32_t>(2 + row % 4 * 6)));
  }
  for (const int64_t max_batch_tokens : {4096, 64})
    expect_same_in_every_batch(requests, settings(max_batch_tokens));
}

TEST_P(Layouts, OfChainsAndForksGiveTheSameBits) {
  std::vector<Request> requests;
  int64_t row = 0;
  for (const io::Followup followup : {io::Followup::chain, io::Followup::fork})
    for (const int64_t length : {3, 121, 260}) {
      Request request = greedy_request(row++, random_tokens(length, vocab, 7), 11);
      request.followup = followup;
      for (const int64_t more : {1, 18, 40}) {
        request.turns.push_back(
            greedy_request(row, random_tokens(more, vocab, static_cast<uint64_t>(row)),
                           static_cast<int32_t>(5 + more))
                .turns.front());
        ++row;
      }
      requests.push_back(std::move(request));
    }
  for (const int64_t max_batch_tokens : {4096, 50})
    expect_same_in_every_batch(requests, settings(max_batch_tokens));
}

/// Everything at once, and as little memory as the largest request needs.
TEST_P(Layouts, InTightMemoryGiveTheSameBits) {
  Request fork = greedy_request(0, random_tokens(90, vocab, 3), 9);
  fork.followup = io::Followup::fork;
  for (int64_t row = 1; row < 4; ++row)
    fork.turns.push_back(
        greedy_request(row, random_tokens(3 * row, vocab, static_cast<uint64_t>(row)), 17)
            .turns.front());
  const std::vector<Request> requests = {fork, greedy_request(4, random_tokens(33, vocab, 8), 12),
                                         greedy_request(5, random_tokens(64, vocab, 9), 30)};
  ReplicaSettings settings = this->settings(40);
  const Results wanted = one_by_one(requests, settings);
  schedule::SchedulerLimits limits;
  limits.layout_invariant = true;
  limits.ring_size = all->size();
  limits.max_batch_tokens = settings.max_batch_tokens;
  for (const Request& request : requests)
    settings.kv_tokens =
        std::max(settings.kv_tokens, schedule::Scheduler(limits).tokens_needed(request));
  expect_same_bits(run_requests(*all, model, requests, settings), wanted);
}

TEST_P(Layouts, GiveWhatTheFastestWayGives) {
  constexpr double tolerance = 1e-4;  // the project's bound for another order of fp32 sums
  std::vector<Request> requests;
  for (const int64_t length : {5, 140, 700})
    requests.push_back(greedy_request(static_cast<int64_t>(requests.size()),
                                      random_tokens(length, vocab, static_cast<uint64_t>(length)),
                                      1));
  ReplicaSettings settings = this->settings(256);
  settings.kv_dtype = DType::fp32;  // a narrower one rounds differently where sums differ
  const Results ours = run_requests(*all, model, requests, settings);
  settings.layout_invariant = false;
  for (const auto& [row, fastest] : run_requests(*all, model, requests, settings)) {
    const io::TurnResult& found = ours.at(row).result;
    EXPECT_TRUE(all_close(found.top_logprobs, fastest.result.top_logprobs, tolerance));
    EXPECT_TRUE(
        all_close(found.prompt_top_logprobs, fastest.result.prompt_top_logprobs, tolerance));
  }
}

TEST_P(Layouts, OfSampledTextGiveTheSameBits) {
  std::vector<Request> requests;
  for (int64_t row = 0; row < 5; ++row) {
    Request request = greedy_request(
        row, random_tokens(5 + 31 * row, vocab, 60 + static_cast<uint64_t>(row)), 20);
    Turn& turn = request.turns.front();
    turn.random_key = 1000 + static_cast<uint64_t>(row);
    turn.params.temperature = 0.8f;
    turn.params.top_p = 0.9f;
    if (row % 2 == 1) turn.params.repetition_penalty = 1.3f;
    requests.push_back(std::move(request));
  }
  expect_same_in_every_batch(requests, settings(4096));
}

/// Prompts and steps of few and of many rows, on the instructions that this CPU has.
TEST_P(Layouts, InProductsOfBf16GiveTheSameBits) {
  std::vector<Request> requests;
  for (const int64_t length : {1, 16, 37, 90, 300, 1100}) {
    const auto row = static_cast<int64_t>(requests.size());
    requests.push_back(
        greedy_request(row, random_tokens(length, vocab, 200 + static_cast<uint64_t>(row)),
                       static_cast<int32_t>(2 + row % 3 * 5)));
  }
  for (const auto products : {kernels::MatmulKind::bf16, kernels::MatmulKind::amx}) {
    if (!kernels::why_no_products(products).empty()) continue;
    for (const int64_t max_batch_tokens : {4096, 64}) {
      ReplicaSettings settings = this->settings(max_batch_tokens);
      settings.products = products;
      expect_same_in_every_batch(requests, settings);
    }
  }
}

TEST_P(Layouts, AreTheSameWhateverMakesTheDecodingRing) {
  const std::vector<Request> requests = {greedy_request(0, random_tokens(40, vocab, 1), 20),
                                         greedy_request(1, random_tokens(7, vocab, 2), 30)};
  ReplicaSettings settings = this->settings(4096);
  const Results wanted = one_by_one(requests, settings);
  for (const auto ring : {parallel::AttentionExchange::pass_kv, parallel::AttentionExchange::pass_q,
                          parallel::AttentionExchange::broadcast_q}) {
    SCOPED_TRACE(fmt::format("ring {}", static_cast<int>(ring)));
    settings.modes.decode_ring = ring;
    expect_same_bits(run_requests(*all, model, requests, settings), wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, Layouts,
                         testing::Combine(testing::ValuesIn(models), testing::ValuesIn(kv_types)),
                         [](const auto& param) {
                           std::string text = std::get<0>(param.param) + "_" +
                                              std::string(name_of(std::get<1>(param.param)));
                           std::replace(text.begin(), text.end(), '-', '_');
                           return text;
                         });

}  // namespace
}  // namespace pecia::test
