// SPDX-License-Identifier: Apache-2.0
/// `reproducible: layout` on every grid of CP × SP × TP that uses all ranks, with every pair of
/// modes that is legal there: every bit of a result is that of one rank alone with the request
/// alone.

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/support/full_matrix.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/same_bits.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using parallel::AttentionExchange;
using Results = std::map<int64_t, batch::Finished>;

constexpr int64_t vocab = 96;           // at least, of every checkpoint used here
constexpr int64_t shift_threshold = 6;  // new tokens: most prompts are above, most steps below
/// Elsewhere than on the host a sample: kernels may be emulated.
const bool sample = place_of_tests() != TestPlace::host;

/// Around where passes are cut, finishing at different times; half of them sampled; a chain and a
/// fork whose turns see cached tokens.
std::vector<Request> make_requests() {
  std::vector<Request> requests;
  int64_t row = 0;
  for (const int64_t length :
       sample ? std::vector<int64_t>{1, 17, 70} : std::vector<int64_t>{1, 2, 15, 17, 70, 600}) {
    const auto seed = static_cast<uint64_t>(row);
    Request request = greedy_request(row, random_tokens(length, vocab, 100 + seed),
                                     static_cast<int32_t>(3 + row % 3 * (sample ? 1 : 5)));
    if (row % 2 == 1) {
      batch::Turn& turn = request.turns.front();
      turn.random_key = 1000 + seed;
      turn.params.temperature = 0.8f;
      turn.params.top_p = 0.9f;
    }
    requests.push_back(std::move(request));
    ++row;
  }
  for (const io::Followup followup : {io::Followup::chain, io::Followup::fork}) {
    if (sample && followup == io::Followup::chain) continue;
    const int64_t lengths[] = {40, 3, 9};
    requests.push_back(greedy_turns(followup, row, lengths, vocab, 0, sample ? 2 : 6));
  }
  return requests;
}

/// Each server with half of the ranks: the first half and the second, or every other one, over
/// which sums have another order.
std::vector<comm::RackServerGpu> two_servers(int ranks, bool by_turns) {
  std::vector<comm::RackServerGpu> places;
  for (int rank = 0; rank < ranks; ++rank)
    places.push_back({"rack", (by_turns ? rank % 2 == 0 : rank < ranks / 2) ? "a" : "b", rank});
  return places;
}

struct EveryModel : testing::TestWithParam<std::string> {
  const std::unique_ptr<comm::Communicator> all =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  const std::filesystem::path model = golden(GetParam());
  const parallel::ModelShape shape = resources::shape_of(model::read_config(model));

  /// Whole distributions, so that every logit counts.
  ReplicaSettings settings(DType kv_dtype, int64_t max_batch_tokens) const {
    ReplicaSettings settings;
    settings.layout_invariant = true;
    settings.kv_dtype = kv_dtype;
    settings.max_batch_tokens = max_batch_tokens;
    settings.logprobs = settings.prompt_logprobs = -1;
    return settings;
  }

  Results one_by_one(const ReplicaSettings& settings) const {
    return run_one_by_one(*all, model, make_requests(), settings);
  }
};

TEST_P(EveryModel, GivesTheSameBitsInEveryMode) {
  const auto all_modes = parallel::legal_modes(all->size(), shape, parallel::Reproducible::layout);
  EXPECT_EQ(all_modes.empty(), all->size() % 3 == 0 && shape.num_heads % 3 != 0);
  std::vector<size_t> numbers(all_modes.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  numbers = sample ? every_nth(numbers, 0, 4) : cases_of(GetParam(), all->size(), numbers);
  if (numbers.empty()) GTEST_SKIP() << "there is no mode, or other families have these modes";
  std::vector<ReplicaSettings> ways = {settings(DType::fp32, 4096), settings(DType::bf16, 64),
                                       settings(DType::fp8, 64)};
  if (place_of_tests() == TestPlace::host && kernels::cpu_has_bf16_products()) {
    ways.push_back(settings(DType::bf16, 4096));
    ways.back().products = kernels::MatmulKind::bf16;
  }
  std::vector<Results> wanted;
  for (const ReplicaSettings& way : ways) wanted.push_back(one_by_one(way));
  for (const size_t i : numbers) {
    const parallel::ModePair& pair = all_modes[i];
    const bool backwards = i / 2 % 2 == 1;
    const size_t way = i % ways.size();
    ReplicaSettings settings = ways[way];
    set_modes(settings, pair, shift_threshold);
    settings.ring = i / 3 % 2 == 0 ? AttentionExchange::pass_q : AttentionExchange::pass_kv;
    settings.places = two_servers(all->size(), i % 5 < 2);
    settings.max_sequences = backwards ? 3 : 64;
    // States of recurrent layers in many groups of heads, or by usual costs.
    settings.link_costs.exchange_s = i % 2 == 0 ? 1e-9 : 0;
    SCOPED_TRACE(fmt::format("{}, {} + {}, {} tokens a pass, {}", parallel::to_string(pair.degrees),
                             parallel::name_of(pair.prefill), parallel::name_of(pair.decode),
                             settings.max_batch_tokens,
                             backwards ? "backwards, 3 at a time" : "in order"));
    auto requests = make_requests();
    if (backwards) std::reverse(requests.begin(), requests.end());
    expect_same_bits(run_requests(*all, model, requests, settings), wanted[way]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, EveryModel,
    testing::Values("llama-gqa-fp32", "llama-mha-tied", "llama-mqa", "llama-biases",
                    "qwen3-qknorm-tied", "mistral-window16", "ministral3-temperature",
                    "internlm2-dynamic-bias", "glm-partial-rope", "granite-multipliers",
                    "smollm3-nope", "phi3-longrope", "olmo2-postnorm", "olmo3-window-yarn",
                    "gemma3-windows", "qwen3moe-norm-dense", "olmoe-qknorm", "gptoss-bf16",
                    "apertus-xielu", "glm4moe-groups", "minimaxm2-allheads", "afmoe-gates",
                    "deepseek3-groups", "glm4moelite-direct", "mistral4-temperature",
                    "llama4-chunks", "qwen2moe-shared-gate", "gemma4-keys-as-values",
                    "gemma4-shared-keys", "gemma4-mixture", "qwen3next-delta", "qwen35-tied",
                    "granitehybrid-experts", "nemotronh-blocks", "nemotronh-latents"),
    name_of_model);

}  // namespace
}  // namespace pecia::test
