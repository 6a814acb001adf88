// SPDX-License-Identifier: Apache-2.0
/// The same text however requests are batched, chunked, chained, forked and spread over ranks.

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>

#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/replica.hpp"

namespace pecia::test {
namespace {

using batch::Finished;
using batch::Request;
using batch::Turn;
using Results = std::map<int64_t, Finished>;

// Of log-probabilities: the project's bound for another order of fp32 sums.
constexpr double tolerance = 1e-4;
constexpr int64_t vocab = 96;  // of every checkpoint used here

struct World {
  std::unique_ptr<comm::Communicator> all =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
};

/// Each request in a run of its own, on one rank, its prompt in one pass.
Results one_by_one(const std::string& model, const std::vector<Request>& requests,
                   const ReplicaSettings& like = {}) {
  ReplicaSettings settings = like;
  settings.max_batch_tokens = 1 << 20;
  settings.kv_tokens = 0;
  return run_one_by_one(*World().all, golden(model), requests, settings);
}

void expect_same_text(const io::TurnResult& found, const io::TurnResult& wanted, double bound) {
  EXPECT_EQ(found.tokens, wanted.tokens);
  EXPECT_TRUE(all_close(found.token_logprobs, wanted.token_logprobs, bound));
  EXPECT_TRUE(all_close(found.top_logprobs, wanted.top_logprobs, bound));
  EXPECT_TRUE(all_close(found.prompt_logprobs, wanted.prompt_logprobs, bound));
}

void expect_same_results(const Results& found, const Results& wanted, double bound = tolerance) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [row, want] : wanted) {
    SCOPED_TRACE(fmt::format("row {}", row));
    ASSERT_TRUE(found.contains(row));
    ASSERT_EQ(found.at(row).state, io::TurnState::done) << found.at(row).result.error;
    ASSERT_EQ(want.state, io::TurnState::done) << want.result.error;
    expect_same_text(found.at(row).result, want.result, bound);
  }
}

/// Prompts of lengths around where a ring of N ranks cuts them, and long ones.
std::vector<Request> ragged_requests(int ranks) {
  std::vector<Request> requests;
  int64_t row = 0;
  for (const int64_t length : {1, 2, 2 * ranks - 1, 2 * ranks, 2 * ranks + 1, 37, 300, 1100}) {
    const uint64_t seed = 100 + static_cast<uint64_t>(row);
    const auto new_tokens = static_cast<int32_t>(3 + row % 4 * 5);
    requests.push_back(greedy_request(row, random_tokens(length, vocab, seed), new_tokens));
    ++row;
  }
  return requests;
}

struct EveryModel : testing::TestWithParam<std::string> {};

TEST_P(EveryModel, AnswersARaggedBatchAsOneByOne) {
  const World world;
  const auto requests = ragged_requests(world.all->size());
  ReplicaSettings settings;
  settings.prompt_logprobs = 1;
  settings.logprobs = 5;
  const Results wanted = one_by_one(GetParam(), requests, settings);
  for (const auto& [row, finished] : wanted)  // no greedy choice hangs on the order of a sum
    for (size_t i = 0; i < finished.result.top_logprobs.size(); i += 5)
      ASSERT_GT(finished.result.top_logprobs[i] - finished.result.top_logprobs[i + 1],
                2 * tolerance)
          << "row " << row;
  for (const int64_t max_batch_tokens : {4096, 64, 7}) {
    for (const bool backwards : {false, true}) {
      SCOPED_TRACE(fmt::format("{} tokens a pass, {}", max_batch_tokens,
                               backwards ? "longest first" : "shortest first"));
      auto ordered = requests;
      if (backwards) std::reverse(ordered.begin(), ordered.end());
      settings.max_batch_tokens = max_batch_tokens;
      settings.max_sequences = backwards ? 3 : 64;
      expect_same_results(run_requests(*world.all, golden(GetParam()), ordered, settings), wanted);
    }
  }
}

/// Presence and frequency penalties are for tokens of the answer (OpenAI's API reference), so they
/// leave its first token as it is, also where the prompt has this token many times.
TEST(Penalties, OfPresenceAndFrequencyDoNotCountThePrompt) {
  const World world;
  const std::string model = "llama-gqa-fp32";
  constexpr int64_t prompts = 12;
  std::vector<Request> requests;
  for (int64_t row = 0; row < prompts; ++row)
    requests.push_back(greedy_request(row, random_tokens(90, vocab, 500 + row), 1));
  const Results plain = one_by_one(model, requests);
  int in_prompt = 0;
  for (Request& request : requests) {
    Turn& turn = request.turns.front();
    turn.params.presence_penalty = turn.params.frequency_penalty = 2;
    const int32_t first = plain.at(turn.row).result.tokens.at(0);
    in_prompt += std::ranges::count(turn.tokens, first) > 0 ? 1 : 0;
  }
  ASSERT_GE(in_prompt, 3) << "penalties of the prompt would show";
  for (const auto& [row, found] : run_requests(*world.all, golden(model), requests, {}))
    EXPECT_EQ(found.result.tokens, plain.at(row).result.tokens) << "row " << row;
}

Turn turn_of(int64_t row, std::vector<int32_t> tokens, int32_t new_tokens) {
  return greedy_request(row, std::move(tokens), new_tokens).turns.front();
}

/// `first` with `second`'s tokens after it.
std::vector<int32_t> joined(std::vector<int32_t> first, const std::vector<int32_t>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST_P(EveryModel, AnswersAChainAsOneLongPrompt) {
  const World world;
  const std::vector<std::vector<int32_t>> prompts = {
      random_tokens(83, vocab, 1), random_tokens(1, vocab, 2), random_tokens(40, vocab, 3)};
  const std::vector<int32_t> new_tokens = {9, 0, 12};
  Request chain;
  for (size_t i = 0; i < prompts.size(); ++i)
    chain.turns.push_back(turn_of(static_cast<int64_t>(i), prompts[i], new_tokens[i]));
  ReplicaSettings settings;
  settings.prompt_logprobs = 1;

  Results wanted;
  std::vector<int32_t> history;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    const size_t before = history.size();
    history = joined(history, prompts[i]);
    Finished whole =
        one_by_one(GetParam(), {greedy_request(row, history, new_tokens[i])}, settings).at(row);
    whole.result.prompt_logprobs.erase(
        whole.result.prompt_logprobs.begin(),
        whole.result.prompt_logprobs.begin() + static_cast<int64_t>(before));
    history = joined(history, whole.result.tokens);
    wanted[row] = std::move(whole);
  }
  for (const int64_t max_batch_tokens : {4096, 17}) {
    SCOPED_TRACE(fmt::format("{} tokens a pass", max_batch_tokens));
    settings.max_batch_tokens = max_batch_tokens;
    expect_same_results(run_requests(*world.all, golden(GetParam()), {chain}, settings), wanted);
  }
}

TEST_P(EveryModel, AnswersForkBranchesAsWholePrompts) {
  const World world;
  const auto stem = random_tokens(121, vocab, 4);
  Request fork;
  fork.followup = io::Followup::fork;
  fork.turns.push_back(turn_of(0, stem, 6));
  std::vector<Request> whole = {greedy_request(0, stem, 6)};
  for (int64_t row = 1; row < 6; ++row) {
    const auto question = random_tokens(row * row, vocab, 40 + static_cast<uint64_t>(row));
    const auto new_tokens = static_cast<int32_t>(2 * row);
    fork.turns.push_back(turn_of(row, question, new_tokens));
    whole.push_back(greedy_request(row, joined(stem, question), new_tokens));
  }
  ReplicaSettings settings;
  settings.prompt_logprobs = 1;
  Results wanted = one_by_one(GetParam(), whole, settings);
  for (auto& [row, finished] : wanted) {
    auto& prompt = finished.result.prompt_logprobs;
    if (row > 0) prompt.erase(prompt.begin(), prompt.begin() + static_cast<int64_t>(stem.size()));
  }

  expect_same_results(run_requests(*world.all, golden(GetParam()), {fork}, settings), wanted);

  settings.max_batch_tokens = 50;
  schedule::SchedulerLimits limits;
  limits.ring_size = world.all->size();
  limits.max_batch_tokens = settings.max_batch_tokens;
  settings.kv_tokens = schedule::Scheduler(limits).tokens_needed(fork);  // one branch at a time
  expect_same_results(run_requests(*world.all, golden(GetParam()), {fork}, settings), wanted);
}

/// Ragged prompts, a chain and a fork.
std::vector<Request> requests_of_every_kind(int ranks) {
  auto requests = ragged_requests(ranks);
  Request chain, fork;
  int64_t row = static_cast<int64_t>(requests.size());
  for (const int64_t length : {90, 3, 41})
    chain.turns.push_back(turn_of(row++, random_tokens(length, vocab, 7), 9));
  for (const int64_t length : {133, 1, 17, 30})
    fork.turns.push_back(turn_of(row++, random_tokens(length, vocab, 8), 6));
  fork.followup = io::Followup::fork;
  requests.push_back(chain);
  requests.push_back(fork);
  return requests;
}

/// What the passes of a run had in them.
struct PassesSeen {
  bool pass_kv = false, pass_q = false;  ///< with prompts
  bool mixed = false;                    ///< prompts and decodes together

  void operator()(const schedule::Plan& plan) {
    const auto prompts = std::count_if(plan.items.begin(), plan.items.end(), [](const auto& item) {
      return item.rows.owner == parallel::PassSequence::balanced;
    });
    if (prompts == 0) return;
    (plan.teams.front().ring == parallel::AttentionExchange::pass_kv ? pass_kv : pass_q) = true;
    mixed = mixed || prompts < static_cast<int64_t>(plan.items.size());
  }
};

TEST_P(EveryModel, AnswersTheSameUnderEveryPolicyAndRing) {
  using job::Policy;
  using parallel::AttentionExchange;
  const World world;
  const auto requests = requests_of_every_kind(world.all->size());
  ReplicaSettings settings;
  settings.prompt_logprobs = 1;
  settings.logprobs = 5;
  // Attention that hides no transfer: what travels follows from how much is new, and both do.
  settings.ring_rates = {1e15, 1e6, 1e6};
  const Results wanted = one_by_one(GetParam(), requests, settings);
  for (const Policy policy : {Policy::prefill_first, Policy::chunked})
    for (const std::optional<AttentionExchange> ring :
         {std::optional(AttentionExchange::pass_kv), std::optional(AttentionExchange::pass_q),
          std::optional<AttentionExchange>()})
      for (const int64_t max_batch_tokens : {4096, 64, 7}) {
        const bool chunked = policy == Policy::chunked;
        SCOPED_TRACE(fmt::format(
            "{}, ring {}, {} tokens a pass", chunked ? "chunked" : "prefill first",
            ring ? std::to_string(static_cast<int>(*ring)) : "by rule", max_batch_tokens));
        PassesSeen seen;
        settings.on_plan = std::ref(seen);
        settings.policy = policy;
        settings.ring = ring;
        settings.max_batch_tokens = max_batch_tokens;
        expect_same_results(run_requests(*world.all, golden(GetParam()), requests, settings),
                            wanted);
        const bool alone = world.all->size() == 1;
        EXPECT_EQ(seen.mixed, chunked);
        EXPECT_EQ(seen.pass_q, !alone && ring != AttentionExchange::pass_kv);
        EXPECT_EQ(seen.pass_kv, alone || ring != AttentionExchange::pass_q);
      }
}

std::vector<Request> sampled_requests() {
  std::vector<Request> requests;
  for (int64_t row = 0; row < 6; ++row) {
    Request request = greedy_request(
        row, random_tokens(5 + 31 * row, vocab, 60 + static_cast<uint64_t>(row)), 20);
    Turn& turn = request.turns.front();
    turn.random_key = 1000 + static_cast<uint64_t>(row);
    turn.params.temperature = 0.8f;
    if (row % 3 == 1) turn.params.top_k = 20;
    if (row % 3 == 2) turn.params.top_p = 0.9f;
    if (row % 2 == 1) {
      turn.params.repetition_penalty = 1.3f;
      turn.params.presence_penalty = 0.5f;
      turn.params.frequency_penalty = 0.25f;
    }
    Turn next = turn;
    next.row = row + 6;
    next.tokens = random_tokens(3, vocab, 70 + static_cast<uint64_t>(row));
    next.random_key = 2000 + static_cast<uint64_t>(row);
    request.turns.push_back(std::move(next));
    if (row % 2 == 1) request.followup = io::Followup::fork;
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_P(EveryModel, SamplesTheSameTextInEveryBatch) {
  const World world;
  const auto requests = sampled_requests();
  const Results wanted = one_by_one(GetParam(), requests);
  for (const int64_t max_sequences : {1, 64}) {
    ReplicaSettings settings;
    settings.max_sequences = max_sequences;
    settings.max_batch_tokens = max_sequences == 1 ? 4096 : 30;
    expect_same_results(run_requests(*world.all, golden(GetParam()), requests, settings), wanted);
  }
}

TEST_P(EveryModel, SamplesAnotherTextWithAnotherKey) {
  const World world;
  auto requests = sampled_requests();
  const Results before = run_requests(*world.all, golden(GetParam()), requests, {});
  for (Request& request : requests)
    for (Turn& turn : request.turns) turn.random_key += 5000;
  for (const auto& [row, finished] : run_requests(*world.all, golden(GetParam()), requests, {}))
    EXPECT_NE(finished.result.tokens, before.at(row).result.tokens) << "row " << row;
}

INSTANTIATE_TEST_SUITE_P(Goldens, EveryModel,
                         testing::Values("llama-gqa-fp32", "mistral-window16", "qwen3-qknorm-tied"),
                         [](const auto& model) {
                           std::string text = model.param;
                           std::replace(text.begin(), text.end(), '-', '_');
                           return text;
                         });

/// Log-probabilities of a prompt with narrower keys and values: their root-mean-square difference
/// from fp32's.
double narrowing_error(comm::Communicator& comm, const std::string& model, DType kv_dtype) {
  const std::vector<Request> requests = {greedy_request(0, random_tokens(300, vocab, 9), 1)};
  ReplicaSettings settings;
  settings.prompt_logprobs = -1;
  const auto exact = run_requests(comm, golden(model), requests, settings);
  settings.kv_dtype = kv_dtype;
  const auto narrow = run_requests(comm, golden(model), requests, settings);
  const auto& a = exact.at(0).result.prompt_top_logprobs;
  const auto& b = narrow.at(0).result.prompt_top_logprobs;
  double sum = 0;
  for (size_t i = vocab; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size() - vocab));
}

TEST(NarrowKv, CostsWhatItsRoundingCosts) {
  const World world;
  // Rounding moves each key and value by at most half a unit in its last place, relatively 2^-9
  // (bf16), 2^-12 (fp16) and 2^-4 (fp8). Scores and values are of order 1, a row averages many
  // independent roundings and two layers add up: the root-mean-square shift stays below two units,
  // and cannot be nothing.
  for (const auto& [dtype, unit] : {std::pair{DType::bf16, 0x1p-8}, std::pair{DType::fp16, 0x1p-11},
                                    std::pair{DType::fp8, 0x1p-3}}) {
    const double error = narrowing_error(*world.all, "llama-gqa-fp32", dtype);
    EXPECT_LE(error, 2 * unit) << name_of(dtype);
    EXPECT_GE(error, unit / 256) << name_of(dtype);
  }
}

}  // namespace
}  // namespace pecia::test
