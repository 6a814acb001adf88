// SPDX-License-Identifier: Apache-2.0
/// Requests that share a beginning give on every layout what each gives alone on one rank; the same
/// bits where layouts must not matter.

#include <gtest/gtest.h>
#include <mpi.h>

#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/work/batch/joined_request.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/same_answers.hpp"
#include "tests/support/same_bits.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using Results = std::map<int64_t, batch::Finished>;

constexpr int64_t vocab = 96;  // at least, of every checkpoint used here

/// Requests that begin with the same `shared` tokens: three chains, and two forks whose first turns are
/// answered, too.
std::vector<Request> alike(int64_t shared, uint64_t seed) {
  const auto beginning = random_tokens(shared, vocab, seed);
  std::vector<Request> requests;
  for (const int64_t own : {1, 2, 9, 31, 70}) {
    const auto row = std::ssize(requests);
    std::vector<int32_t> tokens = beginning;
    const auto rest = random_tokens(own, vocab, seed + 1 + static_cast<uint64_t>(row));
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    requests.push_back(greedy_request(row, tokens, static_cast<int32_t>(3 + row % 3 * 4)));
    if (row == 2) requests.back().turns.front().params.repetition_penalty = 1.2f;
  }
  int64_t row = std::ssize(requests);
  for (const size_t fork : {0, 4}) requests[fork].followup = io::Followup::fork;
  for (Request& request : requests)
    for (const int64_t own : {5, 12}) {
      auto tokens = random_tokens(own, vocab, seed + 50 + static_cast<uint64_t>(row));
      auto next = greedy_request(row++, std::move(tokens), 4);
      request.turns.push_back(std::move(next.turns.front()));
    }
  return requests;
}

struct EveryModel : testing::TestWithParam<std::string> {
  std::unique_ptr<comm::Communicator> world =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  std::filesystem::path model = golden(GetParam());

  Results run_joined(const std::vector<Request>& requests, int64_t shared,
                     const ReplicaSettings& settings) const {
    return run_requests(*world, model, {batch::joined(requests, shared).value()}, settings);
  }
};

TEST_P(EveryModel, AnswersInEveryModeWhatARequestAloneGets) {
  constexpr int64_t shared = 57;
  ReplicaSettings settings;
  settings.logprobs = 3;
  std::vector<Request> requests;
  Results wanted;
  uint64_t seed = 0;
  do {  // until no greedy choice hangs on the order of a sum
    requests = alike(shared, seed += 100);
    wanted = run_alone(*world, model, requests, settings);
  } while (near_tie(wanted, settings.logprobs));
  const auto expect_wanted = [&](const ReplicaSettings& of, const std::string& name) {
    SCOPED_TRACE(name);
    expect_same_answers(run_joined(requests, shared, of), wanted);
  };
  const auto config = model::read_config(model);
  for (const parallel::ModePair& pair :
       parallel::legal_modes(world->size(), resources::shape_of(config)))
    for (const auto policy : {job::Policy::prefill_first, job::Policy::chunked}) {
      ReplicaSettings of = settings;
      set_modes(of, pair);
      of.ring = policy == job::Policy::chunked ? parallel::AttentionExchange::pass_q
                                               : parallel::AttentionExchange::pass_kv;
      of.policy = policy;
      of.max_batch_tokens = policy == job::Policy::chunked ? 4096 : 23;
      of.max_sequences = 3;
      expect_wanted(
          of, fmt::format("{}, {} + {}", to_string(pair.degrees), parallel::name_of(pair.prefill),
                          parallel::name_of(pair.decode)));
    }
  ReplicaSettings elastic = settings;
  elastic.elastic = true;
  elastic.max_batch_tokens = 23;
  expect_wanted(elastic, "elastic");
}

TEST_P(EveryModel, AnswersWithTheBitsOfARequestAlone) {
  if (world->size() == 3) GTEST_SKIP() << "3 ranks do not divide the 8 virtual ones";
  ReplicaSettings settings;
  settings.layout_invariant = true;
  settings.logprobs = -1;
  settings.max_batch_tokens = 32;
  constexpr int64_t shared = 64;  // prompts are cut at multiples of 32 in any case
  const auto requests = alike(shared, 7);
  const Results wanted = run_one_by_one(*world, model, requests, settings);
  expect_same_bits(run_joined(requests, shared, settings), wanted);
}

INSTANTIATE_TEST_SUITE_P(Goldens, EveryModel,
                         testing::Values("llama-gqa-fp32", "mistral-window16", "afmoe-gates",
                                         "mistral4-temperature", "llama4-chunks",
                                         "gemma4-shared-keys"),
                         [](const auto& param) {
                           std::string text = param.param;
                           std::replace(text.begin(), text.end(), '-', '_');
                           return text;
                         });

}  // namespace
}  // namespace pecia::test
