// SPDX-License-Identifier: Apache-2.0
/// Everything above the kernels on a device that is not the host: in every legal mode its results
/// are, bit by bit, those of the host.

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/support/deep_model.hpp"
#include "tests/support/full_matrix.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/same_bits.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using parallel::AttentionExchange;
using parallel::Reproducible;

constexpr int64_t vocab = 96;           // at least, of every checkpoint used here
constexpr int64_t shift_threshold = 6;  // new tokens: most prompts are above, most steps below

/// Greedy, of the two best, and of all tokens; a chain and a fork.
std::vector<Request> make_requests() {
  std::vector<Request> requests;
  int64_t row = 0;
  for (const int64_t length : {1, 17, 70, 300}) {
    Request request =
        greedy_request(row, random_tokens(length, vocab, static_cast<uint64_t>(row)), 5);
    batch::Turn& turn = request.turns.front();
    turn.random_key = static_cast<uint64_t>(row);
    if (row % 4 > 1) turn.params = {.temperature = 0.8f, .repetition_penalty = 1.2f};
    if (row % 4 == 2) turn.params.top_k = 2;
    requests.push_back(std::move(request));
    ++row;
  }
  for (const io::Followup followup : {io::Followup::chain, io::Followup::fork}) {
    const int64_t lengths[] = {40, 3, 9};
    requests.push_back(greedy_turns(followup, row, lengths, vocab, 0, 4));
  }
  return requests;
}

/// How tensors travel: in turn, or both ways in the full matrix.
std::vector<TestPlace> places_of(size_t number) {
  return every_nth<TestPlace>({TestPlace::separate_staged, TestPlace::separate_nccl}, number, 2);
}

struct Mode {
  Reproducible reproducible;
  parallel::ModePair pair;
  size_t number;
};

struct EveryModel : testing::TestWithParam<std::string> {};

TEST_P(EveryModel, GivesTheBitsOfTheHostInEveryMode) {
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  const std::filesystem::path model = golden(GetParam());
  const parallel::ModelShape shape = resources::shape_of(model::read_config(model));
  std::vector<Mode> modes;
  for (const Reproducible reproducible : {Reproducible::run, Reproducible::layout})
    for (const parallel::ModePair& pair : parallel::legal_modes(all->size(), shape, reproducible))
      modes.push_back({reproducible, pair, modes.size()});
  modes = cases_of(GetParam(), all->size(), modes);
  if (modes.empty()) GTEST_SKIP() << "other families have these modes";
  for (const auto& [reproducible, pair, number] : modes) {
    ReplicaSettings settings;
    set_modes(settings, pair, shift_threshold);
    settings.ring = number % 2 == 0 ? AttentionExchange::pass_q : AttentionExchange::pass_kv;
    settings.max_batch_tokens = number % 3 == 0 ? 64 : 4096;
    settings.layout_invariant = reproducible == Reproducible::layout;
    constexpr DType kv_types[] = {DType::fp32, DType::bf16, DType::fp8};
    settings.kv_dtype = kv_types[number % 3];
    settings.logprobs = 3;
    settings.prompt_logprobs = number % 4 == 0 ? -1 : 1;
    if (reproducible == Reproducible::run && number % 3 == 1)
      settings.policy = job::Policy::chunked;
    SCOPED_TRACE(fmt::format("{}, {} + {}", parallel::to_string(pair.degrees),
                             parallel::name_of(pair.prefill), parallel::name_of(pair.decode)));
    const auto wanted = run_requests(*all, model, make_requests(), settings);
    for (const TestPlace place : places_of(number / 2)) {
      settings.place = place;
      expect_same_bits(run_requests(*all, model, make_requests(), settings), wanted);
    }
  }
}

/// In passes by levels, which choose tokens and copy them by lists; of five layers, of which the
/// middle three drop.
TEST(Levels, GiveTheBitsOfTheHost) {
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  const TempFolder model;
  write_deep_model("qwen2-window-upper-layer", 5, model);
  constexpr DType kv_types[] = {DType::fp32, DType::bf16, DType::fp8};
  size_t number = 0;
  for (const int tp : {1, 2, 4})
    for (const parallel::Geometry geometry :
         {parallel::Geometry::disjoint, parallel::Geometry::nested})
      for (const double drop : {0.0, 0.5}) {
        if (all->size() % tp != 0) continue;
        SCOPED_TRACE(
            fmt::format("TP {}, geometry {}, drop {}", tp, static_cast<int>(geometry), drop));
        ReplicaSettings settings;
        settings.tp = tp;
        settings.levels_from = 9;
        settings.sparse = {{geometry, drop}, 3, parallel::Micros{1 + static_cast<int>(number % 2)}};
        settings.max_batch_tokens = number % 2 == 0 ? 200 : 4096;
        settings.kv_dtype = kv_types[number++ % 3];
        settings.logprobs = 3;
        settings.prompt_logprobs = 1;
        int by_levels = 0;
        settings.on_plan = [&](const schedule::Plan& plan) {
          by_levels += plan.teams.front().ring == AttentionExchange::levels;
        };
        const auto wanted = run_requests(*all, model.path(), make_requests(), settings);
        EXPECT_GT(by_levels, 2);
        for (const TestPlace place : places_of(number / 2)) {
          settings.place = place;
          expect_same_bits(run_requests(*all, model.path(), make_requests(), settings), wanted);
        }
      }
}

/// The host's time would differ from run to run.
TEST(Times, AreTheDevices) {
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  ReplicaSettings settings;
  settings.place = TestPlace::separate_nccl;
  const auto times = [&] {
    std::vector<std::array<float, 4>> found;
    for (const auto& [row, finished] :
         run_requests(*all, golden("llama-gqa-fp32"), make_requests(), settings)) {
      const io::TurnResult& turn = finished.result;
      found.push_back(
          {turn.prefill_compute_s, turn.prefill_comm_s, turn.decode_compute_s, turn.decode_comm_s});
      EXPECT_GT(turn.prefill_compute_s, 0);
      EXPECT_GT(turn.decode_compute_s, 0);
      EXPECT_GE(turn.prefill_comm_s, 0);
      EXPECT_GE(turn.decode_comm_s, 0);
    }
    return found;
  };
  EXPECT_EQ(times(), times());
}

INSTANTIATE_TEST_SUITE_P(Families, EveryModel,
                         testing::Values("llama-gqa-fp32", "llama-biases", "internlm2-dynamic-bias",
                                         "olmo3-window-yarn", "gemma3-windows",
                                         "qwen3moe-norm-dense", "gptoss-bf16", "glm4moe-groups",
                                         "minimaxm2-allheads", "afmoe-gates"),
                         name_of_model);

}  // namespace
}  // namespace pecia::test
