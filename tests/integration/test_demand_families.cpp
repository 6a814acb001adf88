// SPDX-License-Identifier: Apache-2.0
/// Memory on demand gives the bits of reserved memory: with every family, memory for a part of the
/// batch, sequences that are parked or forgotten, and yields that memory or a seed forces.

#include <gtest/gtest.h>
#include <mpi.h>

#include <array>

#include "lib/base/core/random.hpp"
#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/support/full_matrix.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/same_bits.hpp"

namespace pecia::test {
namespace {

using batch::Request;

struct Case {
  int64_t part;  ///< the memory holds one in so many of the batch, but at least the largest request
  bool parks, forced;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int64_t part : {8, 4, 2, 1})
    for (const bool parks : {true, false})
      for (const bool forced : {true, false})
        if (part > 1 || forced) cases.push_back({part, parks, forced});
  return cases;
}

/// Single turns, chains and forks, whose lengths are drawn; every other answer is sampled.
std::vector<Request> drawn_requests(int64_t vocab, uint64_t seed) {
  uint64_t drawn = 0;
  const auto up_to = [&](int64_t most) {
    return 1 + static_cast<int64_t>(mix(seed, drawn++) % static_cast<uint64_t>(most));
  };
  std::vector<Request> requests;
  int64_t row = 0;
  for (int number = 0; number < 8; ++number) {
    const std::array<int64_t, 3> lengths = {up_to(70), up_to(20), up_to(9)};
    const auto followup = number % 4 == 0 ? io::Followup::fork : io::Followup::chain;
    const size_t turns = number % 2 == 0 ? lengths.size() : 1;
    Request request = greedy_turns(followup, row, std::span(lengths).first(turns), vocab, seed, 0);
    for (batch::Turn& turn : request.turns) {
      turn.max_new_tokens = static_cast<int32_t>(up_to(24));
      turn.params.temperature = number % 2 == 0 ? 0.0F : 0.9F;
      turn.random_key = seed + static_cast<uint64_t>(turn.row);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

struct DemandFamilies : testing::TestWithParam<std::string> {
  std::unique_ptr<comm::Communicator> all =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(300));
};

TEST_P(DemandFamilies, GiveTheBitsOfReservedMemory) {
  const auto folder = golden(GetParam());
  const uint64_t seed = number_of(GetParam()) + static_cast<uint64_t>(all->size());
  const auto requests = drawn_requests(model::read_config(folder).vocab, seed);
  ReplicaSettings settings;
  settings.layout_invariant = true;
  settings.max_batch_tokens = 32;
  settings.max_sequences = 6;
  settings.logprobs = -1;
  settings.block = 4;
  settings.admission = job::KvAdmission::reserve;
  const auto wanted = run_alone(*all, folder, requests, settings);

  schedule::SchedulerLimits limits;
  limits.layout_invariant = true;
  limits.ring_size = all->size();
  limits.max_batch_tokens = settings.max_batch_tokens;
  limits.has_states = model::read_config(folder).recurrent.has_value();
  const schedule::Scheduler counting(limits);
  int64_t least = 0, whole = 0;
  for (const Request& request : requests) {
    least = std::max(least, counting.tokens_needed(request));
    whole += counting.tokens_needed(request);
  }
  schedule::DemandCounts counts;
  settings.demand = &counts;
  settings.admission = job::KvAdmission::demand;
  for (const Case& each : every_nth(all_cases(), seed, 7)) {
    SCOPED_TRACE(fmt::format("a part of 1/{}, {}{}", each.part, each.parks ? "parked" : "forgotten",
                             each.forced ? ", forced" : ""));
    settings.kv_tokens = std::max(least, whole / each.part);
    settings.parking_tokens = each.parks ? limits.parking_tokens : 0;
    settings.forced_yields = each.forced ? std::optional(seed) : std::nullopt;
    expect_same_bits(run_requests(*all, folder, requests, settings), wanted);
    EXPECT_EQ(counts.parked_tokens, counts.returned_tokens);
    EXPECT_TRUE(!each.forced || (each.parks ? counts.parked : counts.reread_tokens) > 0);
    EXPECT_EQ(each.parks ? counts.forgotten : counts.parked, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, DemandFamilies,
    testing::Values("llama-gqa-fp32", "llama-rope-dynamic", "mistral-window16",
                    "ministral-window-lists", "ministral3-temperature", "qwen2-window-upper-layer",
                    "qwen3-qknorm-tied", "glm-partial-rope", "internlm2", "granite-multipliers",
                    "smollm3-nope", "phi3-longrope", "olmo2-postnorm", "olmo3-window-yarn",
                    "gemma3-windows", "qwen3moe-norm-dense", "mixtral-window16", "olmoe-qknorm",
                    "gptoss-bf16", "apertus-xielu", "glm4moe-groups", "minimaxm2-allheads",
                    "afmoe-gates", "deepseek3-groups", "glm4moelite-direct", "mistral4-temperature",
                    "llama4-chunks", "qwen2moe-shared-gate", "gemma4-keys-as-values",
                    "gemma4-shared-keys", "gemma4-mixture", "qwen3next-delta", "qwen35-tied",
                    "qwen35moe-stacked", "granitehybrid-dense", "granitehybrid-experts",
                    "nemotronh-blocks"),
    name_of_model);

}  // namespace
}  // namespace pecia::test
