// SPDX-License-Identifier: Apache-2.0
/// Vectors and scores: against transformers, against log-probabilities of answers' runs, and on every
/// layout against one rank.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "lib/files/disk/sha256.hpp"
#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/work/batch/joined_request.hpp"
#include "lib/work/batch/request_turns.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/same_bits.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using batch::Turn;
using io::Produce;
using nlohmann::json;
using Results = std::map<int64_t, batch::Finished>;

constexpr int64_t vocab = 96;  // at least, of every checkpoint used here
/// Of a number of a vector of length 1, and of a log-probability: sums of fp32 in another order, as in
/// test_goldens.
constexpr double vector_tolerance = 1e-5, logprob_tolerance = 1e-4;

std::unique_ptr<comm::Communicator> world() {
  return comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
}

Turn turn_of(int64_t row, std::vector<int32_t> tokens, Produce produce) {
  Turn turn = greedy_request(row, std::move(tokens), 0).turns.front();
  turn.produce = produce;
  return turn;
}

Turn vector_of(int64_t row, std::vector<int32_t> tokens, std::vector<io::TokenSpan> spans) {
  Turn turn = turn_of(row, std::move(tokens), Produce::vector);
  turn.spans = std::move(spans);
  return turn;
}

Request score_of(int64_t row, std::vector<int32_t> tokens,
                 std::vector<std::vector<int32_t>> continuations,
                 Produce produce = Produce::score) {
  Request request;
  request.turns.push_back(turn_of(row, std::move(tokens), produce));
  request.turns.front().continuations = std::move(continuations);
  fork_continuations(request);
  return request;
}

/// The last token's vector, the mean, and spans that overlap, of ragged lengths; vectors between
/// answers; scores of prompts, of continuations of one token and of several.
std::vector<Request> products() {
  std::vector<Request> requests;
  int64_t row = 0;
  const auto tokens = [](int64_t count, uint64_t seed) {
    return random_tokens(count, vocab, seed);
  };
  for (const int64_t length : {1, 2, 17, 70, 150}) {
    const auto seed = static_cast<uint64_t>(length);
    const std::vector<io::TokenSpan> spans[] = {
        {{length - 1, length}}, {{0, length}}, {{0, 1}, {length / 3, length}, {0, length / 2 + 1}}};
    for (const auto& of : spans) {
      requests.emplace_back();
      requests.back().turns.push_back(vector_of(row++, tokens(length, seed), of));
    }
    if (length > 1) requests.push_back(score_of(row++, tokens(length, seed + 1), {}));
  }
  Request chain;
  chain.turns.push_back(vector_of(row++, tokens(23, 7), {{0, 23}}));
  chain.turns.push_back(greedy_request(row++, tokens(5, 8), 3).turns.front());
  chain.turns.push_back(turn_of(row++, tokens(9, 9), Produce::score));
  chain.turns.push_back(vector_of(row++, tokens(4, 10), {{1, 3}}));
  requests.push_back(std::move(chain));
  Request fork;
  fork.followup = io::Followup::fork;
  fork.turns.push_back(vector_of(row++, tokens(41, 11), {{0, 41}, {40, 41}}));
  fork.turns.push_back(turn_of(row++, tokens(6, 12), Produce::score));
  fork.turns.push_back(vector_of(row++, tokens(3, 13), {{0, 3}}));
  fork.turns.push_back(greedy_request(row++, tokens(2, 14), 4).turns.front());
  requests.push_back(std::move(fork));
  requests.push_back(score_of(row++, tokens(33, 15), {{7}, {8}, {90}}));
  requests.push_back(score_of(row++, tokens(33, 15), {{7}, {8}}, Produce::rerank));
  requests.push_back(score_of(row++, tokens(50, 16), {{7}, tokens(12, 17), tokens(2, 18)}));
  requests.push_back(score_of(row++, tokens(1, 19), {tokens(3, 20), tokens(90, 21)}));
  return requests;
}

void expect_same_products(const Results& found, const Results& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [row, want] : wanted) {
    SCOPED_TRACE(fmt::format("row {}", row));
    ASSERT_TRUE(found.contains(row));
    const io::TurnResult &a = found.at(row).result, &b = want.result;
    ASSERT_EQ(found.at(row).state, io::TurnState::done) << a.error;
    ASSERT_EQ(want.state, io::TurnState::done) << b.error;
    EXPECT_TRUE(all_close(a.vectors, b.vectors, vector_tolerance));
    ASSERT_EQ(a.score_logprobs.size(), b.score_logprobs.size());
    for (size_t i = 0; i < a.score_logprobs.size(); ++i)
      if (!std::isnan(b.score_logprobs[i]))
        EXPECT_NEAR(a.score_logprobs[i], b.score_logprobs[i], logprob_tolerance) << i;
      else
        EXPECT_TRUE(std::isnan(a.score_logprobs[i]) && i == 0);
    ASSERT_EQ(a.scores.size(), b.scores.size());
    for (size_t i = 0; i < a.scores.size(); ++i)
      EXPECT_NEAR(a.scores[i], b.scores[i],
                  logprob_tolerance * static_cast<double>(1 + a.score_logprobs.size()));
  }
}

// What transformers makes of the same prompts (tests/goldens/vectors.py).
struct Golden : testing::TestWithParam<std::string> {};

TEST_P(Golden, VectorsAreMet) {
  const std::filesystem::path folder = golden(GetParam());
  const json cases = json::parse(std::ifstream(folder / "vectors.json"))["cases"];
  ASSERT_FALSE(cases.empty());
  std::vector<Request> requests;
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<io::TokenSpan> spans;
    for (const json& span : cases[i]["spans"]) spans.push_back({span[0], span[1]});
    requests.emplace_back().turns.push_back(
        vector_of(static_cast<int64_t>(i), cases[i]["prompt"], spans));
  }
  const auto comm = world();
  for (const bool normalizes : {false, true})
    for (const int64_t batch : {4096, 40}) {
      ReplicaSettings settings;
      settings.normalizes_vectors = normalizes;
      settings.max_batch_tokens = batch;
      const Results found = run_requests(*comm, folder, requests, settings);
      for (size_t i = 0; i < cases.size(); ++i) {
        SCOPED_TRACE(fmt::format("prompt of {} tokens", cases[i]["prompt"].size()));
        const batch::Finished& of = found.at(static_cast<int64_t>(i));
        ASSERT_EQ(of.state, io::TurnState::done) << of.result.error;
        std::vector<float> wanted;
        double largest = 1;
        for (const json& mean : cases[i]["means"]) {
          const auto numbers = mean.get<std::vector<double>>();
          double squares = 0;
          for (const double number : numbers) squares += number * number;
          for (const double number : numbers) {
            wanted.push_back(static_cast<float>(normalizes ? number / std::sqrt(squares) : number));
            largest = std::max<double>(largest, std::abs(wanted.back()));
          }
        }
        EXPECT_TRUE(all_close(of.result.vectors, wanted, vector_tolerance * largest));
      }
    }
}

TEST_P(Golden, ScoresAreMet) {
  const std::filesystem::path folder = golden(GetParam());
  const json cases = json::parse(std::ifstream(folder / "golden.json"))["cases"];
  std::vector<Request> requests;
  int64_t row = 0;
  for (const json& of : cases) {
    const auto prompt = of["prompt"].get<std::vector<int32_t>>();
    const auto middle = prompt.begin() + std::ssize(prompt) / 2;
    if (prompt.size() < 2) continue;
    requests.push_back(score_of(row++, prompt, {}));
    requests.push_back(
        score_of(row++, {prompt.begin(), middle}, {{9}, {middle, prompt.end()}, {8, 7}}));
    requests.push_back(score_of(row++, prompt, {{5}, {6}, {9}}, Produce::rerank));
  }
  const auto comm = world();
  const Results found = run_requests(*comm, folder, requests, {});
  row = 0;
  for (const json& of : cases) {
    const auto prompt = of["prompt"].get<std::vector<int32_t>>();
    if (prompt.size() < 2) continue;
    SCOPED_TRACE(fmt::format("prompt of {} tokens", prompt.size()));
    const auto wanted = of["prompt_logprobs"].get<std::vector<float>>();
    const auto after = of["logprobs"].get<std::vector<double>>();
    const size_t half = prompt.size() / 2;
    const io::TurnResult& whole = found.at(row++).result;
    ASSERT_EQ(whole.score_logprobs.size(), prompt.size()) << whole.error;
    EXPECT_TRUE(std::isnan(whole.score_logprobs.front()));
    EXPECT_TRUE(all_close(std::span(whole.score_logprobs).subspan(1), wanted, logprob_tolerance));
    EXPECT_NEAR(whole.scores.at(0), std::accumulate(wanted.begin(), wanted.end(), 0.0),
                logprob_tolerance * static_cast<double>(prompt.size()));
    const io::TurnResult& choice = found.at(row++).result;
    const auto tail = std::span(wanted).subspan(half - 1);
    ASSERT_EQ(choice.score_logprobs.size(), tail.size() + 3) << choice.error;
    EXPECT_TRUE(all_close(std::span(choice.score_logprobs).subspan(1, tail.size()), tail,
                          logprob_tolerance));
    EXPECT_NEAR(choice.scores.at(1), std::accumulate(tail.begin(), tail.end(), 0.0),
                logprob_tolerance * static_cast<double>(prompt.size()));
    const io::TurnResult& pair = found.at(row++).result;
    ASSERT_EQ(pair.scores.size(), 3) << pair.error;
    const double total = std::exp(after[5]) + std::exp(after[6]) + std::exp(after[9]);
    for (const auto& [i, token] : {std::pair(0, 5), std::pair(1, 6), std::pair(2, 9)})
      EXPECT_NEAR(pair.scores[i], std::exp(after[token]) / total, logprob_tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(SomeFamilies, Golden,
                         testing::Values("llama-gqa-fp32", "qwen3-qknorm-tied",
                                         "granite-multipliers", "gemma3-windows"),
                         name_of_model);

struct EveryModel : testing::TestWithParam<std::string> {
  std::unique_ptr<comm::Communicator> comm = world();
  std::filesystem::path model = golden(GetParam());
  parallel::ModelShape shape = resources::shape_of(model::read_config(model));
};

TEST_P(EveryModel, GivesInEveryModeWhatOneRankGives) {
  ReplicaSettings alone;
  alone.normalizes_vectors = GetParam() != "llama-gqa-fp32";
  const Results wanted = run_alone(*comm, model, products(), alone);
  for (const auto& [row, of] : wanted) ASSERT_EQ(of.state, io::TurnState::done) << of.result.error;
  int way = 0;
  for (const parallel::ModePair& pair : parallel::legal_modes(comm->size(), shape)) {
    ReplicaSettings settings = alone;
    set_modes(settings, pair);
    settings.max_batch_tokens = way % 2 == 0 ? 64 : 4096;
    settings.policy = way % 3 == 0 ? job::Policy::chunked : job::Policy::prefill_first;
    settings.admission = way % 4 < 2 ? job::KvAdmission::demand : job::KvAdmission::reserve;
    if (way % 5 == 0) settings.forced_yields = way + 1;
    if (way % 10 == 0) settings.parking_tokens = 0;  // they are forgotten, and read again
    ++way;
    SCOPED_TRACE(fmt::format("{}, {} + {}", parallel::to_string(pair.degrees),
                             parallel::name_of(pair.prefill), parallel::name_of(pair.decode)));
    expect_same_products(run_requests(*comm, model, products(), settings), wanted);
  }
}

TEST_P(EveryModel, GivesOnTeamsThatChangeWhatOneRankGives) {
  const Results wanted = run_alone(*comm, model, products(), {});
  ReplicaSettings settings;
  settings.elastic = true;
  settings.max_batch_tokens = 64;
  expect_same_products(run_requests(*comm, model, products(), settings), wanted);
}

std::string hash_of(const Results& results) {
  io::Sha256 hash;
  for (const auto& [row, of] : results) {
    const auto add = [&](const auto& values) { hash.update(std::as_bytes(std::span(values))); };
    add(of.result.vectors), add(of.result.scores), add(of.result.score_logprobs);
  }
  return hash.hex();
}

// Bits of `reproducible: layout`: one hash over CP × SP × TP, in every mode.
TEST_P(EveryModel, HasOneHashOnEveryLayout) {
  ReplicaSettings settings;
  settings.layout_invariant = true;
  settings.max_batch_tokens = 64;
  const Results wanted = run_one_by_one(*comm, model, products(), settings);
  for (const auto& [row, of] : wanted) ASSERT_EQ(of.state, io::TurnState::done) << of.result.error;
  for (const parallel::ModePair& pair :
       parallel::legal_modes(comm->size(), shape, parallel::Reproducible::layout)) {
    set_modes(settings, pair);
    SCOPED_TRACE(fmt::format("{}, {} + {}", parallel::to_string(pair.degrees),
                             parallel::name_of(pair.prefill), parallel::name_of(pair.decode)));
    const Results found = run_requests(*comm, model, products(), settings);
    expect_same_bits(found, wanted);
    EXPECT_EQ(hash_of(found), hash_of(wanted));
  }
}

INSTANTIATE_TEST_SUITE_P(SomeFamilies, EveryModel,
                         testing::Values("llama-gqa-fp32", "qwen3-qknorm-tied"), name_of_model);

// Prompts that begin alike: vectors of their last tokens and pairs, which need no other outputs.
TEST(Products, OfPromptsThatShareABeginningAreTheirOwn) {
  const auto comm = world();
  const auto model = golden("llama-gqa-fp32");
  const auto beginning = random_tokens(57, vocab, 1);
  std::vector<Request> requests;
  for (const int64_t own : {1, 8, 30}) {
    auto tokens = beginning;
    const auto rest = random_tokens(own, vocab, static_cast<uint64_t>(own));
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    const auto row = std::ssize(requests), length = std::ssize(tokens);
    requests.emplace_back().turns.push_back(vector_of(row, tokens, {{length - 1, length}}));
    requests.push_back(score_of(row + 1, tokens, {{7}, {8}}, Produce::rerank));
  }
  const Results wanted = run_alone(*comm, model, requests, {});
  const Request together = batch::joined(requests, 57).value();
  expect_same_products(run_requests(*comm, model, {together}, {}), wanted);
}

// One prompt whose hidden states are no numbers fails; the others do not notice.
TEST(Products, FailAloneWhereTheyAreNoNumbers) {
  const auto comm = world();
  ReplicaSettings settings;
  settings.vector_type = io::VectorType::fp16;
  settings.normalizes_vectors = false;
  std::vector<Request> requests;
  requests.push_back(score_of(0, random_tokens(20, vocab, 1), {{5}, {6}}));
  requests.push_back(score_of(1, random_tokens(20, vocab, 1), {{5, 6, 7}, {6, 7}}));
  requests[1].turns[2].refused = "a reason";  // one continuation of several
  requests.push_back(score_of(2, random_tokens(9, vocab, 2), {{5, 6}, {6}}));
  const Results found = run_requests(*comm, golden("llama-gqa-fp32"), requests, settings);
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(found.at(0).state, io::TurnState::done);
  EXPECT_EQ(found.at(1).state, io::TurnState::failed);
  EXPECT_EQ(found.at(1).result.error, "a reason");
  EXPECT_EQ(found.at(2).state, io::TurnState::done);
}

}  // namespace
}  // namespace pecia::test
