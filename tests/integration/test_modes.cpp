// SPDX-License-Identifier: Apache-2.0
/// Every way to spread a request over the ranks gives what one rank alone gives: each grid of
/// CP × SP × TP that uses all ranks, with every sharding and ring, for each kind of model that can
/// be cut so.

#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <set>

#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/full_matrix.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/same_answers.hpp"
#include "tests/support/two_servers.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using parallel::AttentionExchange;
using Results = std::map<int64_t, batch::Finished>;

constexpr int64_t vocab = 96;  // at least, of every checkpoint used here

/// Every legal pair of modes on every grid of `ranks` ranks, with every policy, ring and size of
/// pass. Of these two for each pair of modes in turn, or all in the full matrix.
std::vector<ModeVariant> variants_of(const model::ModelConfig& config, int ranks) {
  std::vector<ModeVariant> variants;
  size_t number = 0;
  for (const parallel::ModePair& pair : parallel::legal_modes(ranks, resources::shape_of(config))) {
    std::vector<ModeVariant> of_pair;
    for (const int64_t max_batch_tokens : {4096, 23})
      for (const auto policy : {job::Policy::prefill_first, job::Policy::chunked})
        for (const AttentionExchange ring :
             {AttentionExchange::pass_kv, AttentionExchange::pass_q}) {
          if (pair.degrees.cp == 1 && ring == AttentionExchange::pass_q) continue;
          ModeVariant variant{
              fmt::format("{}, {} + {}, {}, {} tokens a pass, {}", to_string(pair.degrees),
                          parallel::name_of(pair.prefill), parallel::name_of(pair.decode),
                          parallel::name_of(ring), max_batch_tokens,
                          policy == job::Policy::chunked ? "chunked" : "prefill first"),
              {}};
          ReplicaSettings& settings = variant.settings;
          set_modes(settings, pair, 6,
                    of_pair.size() % 2 == 0 ? std::nullopt : std::optional<int64_t>(41));
          settings.ring = ring;
          settings.policy = policy;
          settings.max_batch_tokens = max_batch_tokens;
          settings.max_sequences = max_batch_tokens == 23 ? 4 : 64;
          if (of_pair.size() % 2 == 0) {
            settings.places = two_servers(ranks);
            settings.link_costs = relays_pay;
          }
          of_pair.push_back(variant);
        }
    if (full_matrix())
      variants.insert(variants.end(), of_pair.begin(), of_pair.end());
    else
      for (const size_t step : {0, 1})
        variants.push_back(
            of_pair[(3 * number + step * (of_pair.size() / 2 + 1)) % of_pair.size()]);
    ++number;
  }
  return variants;
}

/// Lengths around where rings and blocks cut them.
std::vector<Request> requests_for(int64_t ranks, uint64_t seed) {
  return ragged_requests(std::array<int64_t, 6>{1, 2, 2 * ranks - 1, 2 * ranks + 1, 37, 150}, vocab,
                         seed);
}

/// One of each grid and way to prefill.
std::vector<ModeVariant> variants_of_prefill(const model::ModelConfig& config, int ranks) {
  std::vector<ModeVariant> variants;
  std::set<std::string> names;
  for (const parallel::ModePair& pair : parallel::legal_modes(ranks, resources::shape_of(config))) {
    ModeVariant variant{
        fmt::format("{}, {}", to_string(pair.degrees), parallel::name_of(pair.prefill)), {}};
    if (!names.insert(variant.name).second) continue;
    set_modes(variant.settings, pair);
    if (parallel::gathers_weights(pair.degrees, pair.prefill)) {
      ModeVariant mixed = variant;
      mixed.name += ", sp_tp below 41 tokens";
      mixed.settings.modes = parallel::pass_modes(pair, 6, 41);
      variants.push_back(mixed);
    }
    variant.settings.ring =
        variants.size() % 2 == 0 ? AttentionExchange::pass_kv : AttentionExchange::pass_q;
    if (variants.size() % 3 == 0) {
      variant.settings.places = two_servers(ranks);
      variant.settings.link_costs = relays_pay;
    }
    variants.push_back(variant);
  }
  return variants;
}

struct EveryModel : testing::TestWithParam<std::string> {};

TEST_P(EveryModel, AnswersInEveryModeAsOneRank) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  const int ranks = world->size();
  std::vector<ModeVariant> variants =
      cases_of(GetParam(), ranks, variants_of(model::read_config(golden(GetParam())), ranks));
  if (variants.empty()) GTEST_SKIP() << "other families have these modes";
  ReplicaSettings settings;
  settings.logprobs = 3;
  settings.prompt_logprobs = 1;
  std::vector<Request> requests;
  Results wanted;
  uint64_t seed = 0;
  do {  // until no greedy choice hangs on the order of a sum
    requests = requests_for(ranks, seed += 100);
    wanted = run_alone(*world, golden(GetParam()), requests, settings);
  } while (near_tie(wanted, settings.logprobs));
  for (ModeVariant& variant : variants) {
    SCOPED_TRACE(variant.name);
    variant.settings.logprobs = settings.logprobs;
    variant.settings.prompt_logprobs = settings.prompt_logprobs;
    expect_same_answers(run_requests(*world, golden(GetParam()), requests, variant.settings),
                        wanted);
  }
}

struct LongPasses : testing::TestWithParam<std::string> {};

/// Long enough to be cut into blocks of rows and parts of attention.
TEST_P(LongPasses, GiveInEveryModeWhatOneRankGives) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  const int ranks = world->size();
  std::vector<ModeVariant> variants = cases_of(
      GetParam(), ranks, variants_of_prefill(model::read_config(golden(GetParam())), ranks));
  if (variants.empty()) GTEST_SKIP() << "other families have these modes";
  std::vector<Request> requests;
  for (const int64_t length : {2051, 300})
    requests.push_back(greedy_request(length, random_tokens(length, vocab, 11), 1));
  ReplicaSettings settings;
  settings.prompt_logprobs = 1;
  const Results wanted = run_alone(*world, golden(GetParam()), requests, settings);
  for (ModeVariant& variant : variants) {
    SCOPED_TRACE(variant.name);
    variant.settings.prompt_logprobs = settings.prompt_logprobs;
    const Results found = run_requests(*world, golden(GetParam()), requests, variant.settings);
    ASSERT_EQ(found.size(), wanted.size());
    for (const auto& [row, want] : wanted) {
      ASSERT_EQ(found.at(row).state, want.state) << found.at(row).result.error;
      EXPECT_TRUE(all_close(found.at(row).result.prompt_logprobs, want.result.prompt_logprobs,
                            answer_tolerance));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, EveryModel,
    testing::Values("llama-gqa-fp32", "llama-mha-tied", "llama-mqa", "llama-biases", "qwen2-biases",
                    "qwen3-qknorm-tied", "mistral-window16", "ministral3-temperature",
                    "internlm2-dynamic-bias", "glm-partial-rope", "granite-multipliers",
                    "smollm3-nope", "phi3-longrope", "olmo2-postnorm", "olmo3-window-yarn",
                    "gemma3-windows", "qwen3moe-norm-dense", "qwen3moe-raw-step2",
                    "mixtral-window16", "olmoe-qknorm", "gptoss-bf16", "gptoss-mxfp4",
                    "apertus-xielu", "glm4moe-groups", "minimaxm2-allheads", "afmoe-gates",
                    "deepseek3-groups", "glm4moelite-direct", "mistral4-temperature",
                    "llama4-chunks", "qwen2moe-shared-gate", "gemma4-keys-as-values",
                    "gemma4-shared-keys", "gemma4-mixture", "qwen3next-delta", "qwen35-tied",
                    "granitehybrid-experts", "nemotronh-blocks", "nemotronh-latents"),
    name_of_model);

INSTANTIATE_TEST_SUITE_P(Families, LongPasses,
                         testing::Values("llama-gqa-fp32", "qwen3-qknorm-tied", "olmo3-window-yarn",
                                         "gemma3-windows", "qwen3moe-norm-dense", "gptoss-bf16",
                                         "glm4moe-groups", "minimaxm2-allheads", "afmoe-gates",
                                         "deepseek3-groups", "llama4-chunks",
                                         "qwen2moe-shared-gate", "gemma4-shared-keys",
                                         "gemma4-mixture", "qwen3next-delta",
                                         "granitehybrid-experts"),
                         name_of_model);

}  // namespace
}  // namespace pecia::test
