// SPDX-License-Identifier: Apache-2.0
/// Drafts change no answer: with every pair of modes, way of sampling and family, on any ranks, and with
/// the same bits where the layout must not matter.

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>

#include "lib/base/core/random.hpp"
#include "lib/engine/schedule/active_sequence.hpp"
#include "lib/model/attention/recent_slots.hpp"
#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/ranks/parallel/heads.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/support/full_matrix.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/same_answers.hpp"
#include "tests/support/same_bits.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using Results = std::map<int64_t, batch::Finished>;

constexpr int64_t vocab = 96;  // at least, of every checkpoint used here

/// Chains, forks and single turns with every way of sampling.
std::vector<Request> requests_of(int64_t longest, uint64_t seed = 11) {
  std::vector<Request> requests;
  int64_t row = 0;
  for (const int64_t length : {int64_t{3}, int64_t{40}, longest})
    requests.push_back(
        greedy_request(row, random_tokens(length, vocab, 100 + static_cast<uint64_t>(row)), 25)),
        ++row;
  const std::array<int64_t, 3> lengths = {50, 7, 20};
  for (const io::Followup followup : {io::Followup::chain, io::Followup::fork})
    requests.push_back(greedy_turns(followup, row, lengths, vocab, 7, 17));
  for (Request& request : requests)
    for (batch::Turn& turn : request.turns) {
      kernels::SamplingParams& params = turn.params;
      turn.random_key = static_cast<uint64_t>(turn.row) + seed;
      if (turn.row % 3 == 1) params.temperature = 0.8F;
      if (turn.row % 4 == 1) params.top_k = 20;
      if (turn.row % 4 == 2) params.repetition_penalty = 1.3F;
      if (turn.row % 5 == 3) params.frequency_penalty = 0.4F, params.presence_penalty = 0.2F;
      if (turn.row % 5 == 4) params.top_p = 0.9F;
    }
  return requests;
}

/// Drafts what the answers are known to be, and spoils some of it.
schedule::DraftLimits drafts_of(const Results& wanted) {
  return {5, false,
          [&wanted](const schedule::ActiveSequence& sequence, int64_t most,
                    std::vector<int32_t>& draft) {
            const std::vector<int32_t>& known = wanted.at(row_of(sequence)).result.tokens;
            const int64_t given = std::ssize(sequence.result.tokens);
            draft.assign(known.begin() + given,
                         known.begin() + std::min(given + most, std::ssize(known)));
            const uint64_t key =
                mix(static_cast<uint64_t>(sequence.id), static_cast<uint64_t>(given));
            if (draft.empty() || key % 3 == 0) return;
            draft[key / 3 % draft.size()] = static_cast<int32_t>(key % vocab);
          }};
}

int64_t accepted_in(const Results& results) {
  int64_t accepted = 0;
  for (const auto& [row, finished] : results) accepted += finished.result.draft_accepted;
  return accepted;
}

struct Drafts : testing::TestWithParam<std::string> {
  std::unique_ptr<comm::Communicator> all =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(300));
  std::filesystem::path model = golden(GetParam());

  /// Whether the ranks may be groups of this many, of which each has the model's heads.
  bool can_cut_heads(int tp) const {
    const model::ModelConfig config = model::read_config(golden(GetParam()));
    return all->size() % tp == 0 &&
           parallel::can_shard_heads(config.num_heads, config.num_kv_heads, tp);
  }
};
struct DraftModes : Drafts {};
struct DraftTeams : Drafts {};
struct DraftBits : Drafts {};
struct DraftStages : Drafts {};

TEST_P(DraftModes, AnswerAsOneRankWithoutThem) {
  const auto requests = requests_of(90);
  ReplicaSettings settings;
  settings.logprobs = 2;
  const Results wanted = run_alone(*all, model, requests, settings);
  size_t number = 0;
  for (const parallel::ModePair& pair :
       parallel::legal_modes(all->size(), resources::shape_of(model::read_config(model)))) {
    SCOPED_TRACE(fmt::format("{}, {} + {}", to_string(pair.degrees),
                             parallel::name_of(pair.prefill), parallel::name_of(pair.decode)));
    set_modes(settings, pair);
    settings.policy = number % 2 == 0 ? job::Policy::prefill_first : job::Policy::chunked;
    settings.max_batch_tokens = number++ % 3 == 0 ? 4096 : 64;
    settings.drafts = drafts_of(wanted);
    const Results found = run_requests(*all, model, requests, settings);
    expect_same_answers(found, wanted);
    EXPECT_GT(accepted_in(found), 30);
  }
}

ReplicaSettings settings_of_bits() {
  ReplicaSettings settings;
  settings.layout_invariant = true;
  settings.max_batch_tokens = 64;
  settings.logprobs = -1;
  settings.block = 4;
  return settings;
}

TEST_P(DraftBits, AreThoseOfOneTokenAtATime) {
  if (!parallel::can_play_layout(all->size())) GTEST_SKIP() << "other numbers of ranks try it";
  const auto requests = requests_of(90);
  ReplicaSettings settings = settings_of_bits();
  const Results wanted = run_alone(*all, model, requests, settings);
  settings.drafts = drafts_of(wanted);
  for (const auto& forced : {std::optional<uint64_t>(), std::optional<uint64_t>(5)})
    for (const int tp : {1, 2}) {
      if (!can_cut_heads(tp)) continue;
      SCOPED_TRACE(fmt::format("TP {}{}", tp, forced ? ", with yields" : ""));
      settings.tp = tp;
      settings.forced_yields = forced;
      const Results found = run_requests(*all, model, requests, settings);
      expect_same_bits(found, wanted);
      EXPECT_GT(accepted_in(found), 30);
    }
}

/// Groups of answers are in different stages, and sequences yield between their passes.
TEST_P(DraftStages, KeepTheBitsOfOneTokenAtATime) {
  if (all->size() % 2 != 0) GTEST_SKIP() << "two stages have even numbers of ranks";
  const auto requests = requests_of(90);
  ReplicaSettings settings = settings_of_bits();
  const Results wanted = run_alone(*all, model, requests, settings);
  settings.stages = 2;
  settings.drafts = drafts_of(wanted);
  for (const auto& forced : {std::optional<uint64_t>(), std::optional<uint64_t>(5)}) {
    SCOPED_TRACE(forced ? "with yields" : "without yields");
    settings.forced_yields = forced;
    const Results found = run_requests(*all, model, requests, settings);
    expect_same_bits(found, wanted);
    EXPECT_GT(accepted_in(found), 30);
  }
}

/// Teams change, and sequences yield, move and grow between passes that drop drafted tokens.
TEST_P(DraftTeams, AnswerAsOneRankWithoutThem) {
  const auto requests = requests_of(90, 40);  // with 11 two likely tokens are a near tie
  ReplicaSettings settings;
  settings.logprobs = 2;
  const Results wanted = run_alone(*all, model, requests, settings);
  settings.elastic = true;
  settings.drafts = drafts_of(wanted);
  int64_t number = 0;
  for (const auto& forced : {std::optional<uint64_t>(), std::optional<uint64_t>(5)})
    for (const int tp : {1, 2}) {
      if (!can_cut_heads(tp)) continue;
      SCOPED_TRACE(fmt::format("TP {}{}", tp, forced ? ", with yields" : ""));
      settings.tp = tp;
      settings.policy = number++ % 2 == 0 ? job::Policy::prefill_first : job::Policy::chunked;
      settings.max_batch_tokens = 64;
      settings.forced_yields = forced;
      settings.block = forced ? 4 : 128;
      const int64_t instances = all->size() / tp;  // an answer has slots on several
      settings.kv_tokens = forced ? (130 + instances - 1) / instances + 20 : 0;
      schedule::DemandCounts demand;
      settings.demand = &demand;
      const Results found = run_requests(*all, model, requests, settings);
      expect_same_answers(found, wanted);
      EXPECT_GT(accepted_in(found), 30);
      if (forced) {
        EXPECT_GT(demand.parked + demand.moved, 0);
      }
    }
}

/// Prompts are attended by levels, with nothing dropped; answers see all keys.
TEST(DraftsOfLevels, AnswerAsOneRankWithoutThem) {
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  const auto model = golden("llama-gqa-fp32");
  const auto requests = requests_of(200);
  ReplicaSettings settings;
  settings.max_batch_tokens = 250;
  settings.logprobs = 2;
  const Results wanted = run_alone(*all, model, requests, settings);
  if (all->size() == 1) GTEST_SKIP() << "levels are of several ranks";
  settings.levels_from = 24;
  settings.sparse = {{parallel::Geometry::disjoint, 0}, {}, {}};
  settings.modes.decode_ring = parallel::AttentionExchange::broadcast_q;
  settings.drafts = drafts_of(wanted);
  int by_levels = 0;
  settings.on_plan = [&](const schedule::Plan& plan) {
    by_levels += plan.teams.front().ring == parallel::AttentionExchange::levels;
  };
  const Results found = run_requests(*all, model, requests, settings);
  expect_same_answers(found, wanted);
  EXPECT_GT(accepted_in(found), 30);
  EXPECT_GT(by_levels, 1);
}

/// These, or all in the full matrix.
std::vector<std::string> families(std::vector<std::string> some) {
  return full_matrix() ? golden_names() : some;
}

INSTANTIATE_TEST_SUITE_P(Families, DraftStages, testing::Values("llama-gqa-fp32", "qwen35-tied"),
                         name_of_model);
INSTANTIATE_TEST_SUITE_P(Families, DraftTeams,
                         testing::ValuesIn(families({"llama-gqa-fp32", "gemma3-windows",
                                                     "deepseek3-groups"})),
                         name_of_model);
INSTANTIATE_TEST_SUITE_P(Families, DraftModes,
                         testing::ValuesIn(families({"llama-gqa-fp32", "gemma3-windows",
                                                     "deepseek3-groups", "qwen3next-delta",
                                                     "nemotronh-blocks"})),
                         name_of_model);
INSTANTIATE_TEST_SUITE_P(Families, DraftBits,
                         testing::ValuesIn(families({"llama-gqa-fp32", "mistral-window16",
                                                     "qwen3moe-norm-dense", "gemma4-shared-keys",
                                                     "qwen3next-delta", "qwen35-tied",
                                                     "qwen35moe-stacked", "granitehybrid-dense",
                                                     "granitehybrid-experts", "nemotronh-blocks"})),
                         name_of_model);

/// Layers that keep recent tokens, whose windows end among those that were drafted.
TEST(DraftsOfWindows, WhereRecentTokensAreKept) {
  constexpr int64_t window = 16;
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  const auto model = golden("mistral-window16");
  auto requests = requests_of(400);
  for (Request& request : requests)
    for (batch::Turn& turn : request.turns) turn.max_new_tokens *= 6;
  ReplicaSettings settings;
  settings.max_batch_tokens = 64;
  settings.max_sequences = 8;
  settings.logprobs = 2;
  const Results wanted = run_alone(*all, model, requests, settings);
  settings.kv_recent_tokens = attention::RecentSlots::enough(
      window + attention::RecentSlots::margin, 16, settings.max_batch_tokens + 16);
  settings.drafts = drafts_of(wanted);
  const Results found = run_requests(*all, model, requests, settings);
  expect_same_answers(found, wanted);
  EXPECT_GT(accepted_in(found), 100);
}

}  // namespace
}  // namespace pecia::test
