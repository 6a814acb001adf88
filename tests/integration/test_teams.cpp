// SPDX-License-Identifier: Apache-2.0
/// Whole requests, computed by teams of instances that work side by side and change with every
/// plan: the same answers as on one rank.

#include <gtest/gtest.h>
#include <mpi.h>

#include <filesystem>

#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/random_teams.hpp"
#include "tests/support/replica.hpp"

namespace pecia::test {
namespace {

using batch::Request;

constexpr int64_t vocab = 96;
// Of log-probabilities: the project's bound for another order of fp32 sums.
constexpr double tolerance = 1e-4;

enum class Keys { stay, move };

/// Gives a plan's items to random teams of the replica. Each instance has room for all tokens.
class DealsPlans {
 public:
  /// `keys` that move: instances of a team keep keys of others, and take them over from others.
  DealsPlans(int instances, std::vector<parallel::Sharding> shardings, uint64_t seed,
             Keys keys = Keys::stay)
      : map_(instances), random_(instances, seed), shardings_(std::move(shardings)), keys_(keys) {}

  void operator()(schedule::Plan& plan) {
    for (const int64_t sequence : plan.removed) map_.remove(sequence);
    for (schedule::NewSequence& added : plan.added) {
      for (int64_t& slots : added.state.reserved) slots *= map_.instances();
      const bool child = added.state.parent != schedule::NewSequence::no_parent;
      map_.add(added.sequence, added.state.reserved,
               child ? std::optional(added.state.parent) : std::nullopt);
      reserved_[added.sequence] = added.state.reserved;
    }
    for (schedule::ResizedSequence& grown : plan.grown) {
      for (int64_t& slots : grown.reserved) slots *= map_.instances();
      reserved_[grown.sequence] = grown.reserved;
      resize(grown);
    }
    let_grow_again(plan);
    std::map<parallel::SequenceId, size_t> item_of;
    std::vector<parallel::PassSequence> rows;
    for (size_t i = 0; i < plan.items.size(); ++i) {
      const parallel::PassSequence& of_item = plan.items[i].rows;
      item_of[of_item.sequence] = i;
      rows.push_back({of_item.sequence, of_item.first, of_item.count});
    }
    plan.teams.clear();
    std::vector<parallel::TeamPass> passes = random_.place(map_, rows);
    if (keys_ == Keys::move) random_.keep_some(map_, passes);
    for (parallel::TeamPass& pass : passes) {
      parallel::Team& team = pass.team;
      team.sharding = shardings_[random_.number(0, std::ssize(shardings_) - 1)];
      for (const parallel::PassSequence& sequence : pass.rows) {
        const parallel::Placement* const kept = pass.placement(sequence.sequence);
        map_.append(sequence, team, kept);
        schedule::PlanItem& item = plan.items[item_of.at(sequence.sequence)];
        item.rows = sequence;
        item.team = static_cast<int32_t>(plan.teams.size());
        if (kept == nullptr) continue;
        item.kept = kept->shares, item.gathers = kept->gathers;
        const int last = row_owner(sequence, team.workers(), sequence.first + sequence.count - 1);
        states_moved += map_.state_holder(sequence.sequence) != team.instances[last];
        if (kept->gathers != 0) gathered_.push_back(sequence.sequence);
      }
      side_by_side += plan.teams.size() == 1 ? 1 : 0;
      holders += team.holders;
      plan.teams.push_back(team);
    }
  }

  int side_by_side = 0, holders = 0, states_moved = 0;

 private:
  void resize(const schedule::ResizedSequence& to) {
    for (int instance = 0; instance < map_.instances(); ++instance)
      map_.set_reserved(to.sequence, instance, to.reserved[instance]);
  }
  /// Gives sequences slots again on the instances that their keys have left.
  void let_grow_again(schedule::Plan& plan) {
    for (const int64_t sequence : std::exchange(gathered_, {})) {
      if (!map_.contains(sequence)) continue;
      plan.grown.push_back({sequence, reserved_.at(sequence)});
      resize(plan.grown.back());
    }
  }

  parallel::KvMap map_;
  RandomTeams random_;
  std::vector<parallel::Sharding> shardings_;
  Keys keys_;
  std::map<int64_t, std::vector<int64_t>> reserved_;  ///< by sequence
  std::vector<int64_t> gathered_;                     ///< by the plan before
};

/// Of several lengths, one with penalties; a chain and a fork.
std::vector<Request> make_requests(int64_t words = vocab) {
  std::vector<Request> requests;
  int64_t row = 0;
  for (const int64_t length : {1, 9, 33, 80, 21, 5, 47, 2}) {
    requests.push_back(
        greedy_request(row, random_tokens(length, words, static_cast<uint64_t>(row)), 7));
    if (row == 3) requests.back().turns.front().params.repetition_penalty = 1.2f;
    ++row;
  }
  for (const io::Followup followup : {io::Followup::chain, io::Followup::fork}) {
    const int64_t lengths[] = {30, 3, 9};
    requests.push_back(greedy_turns(followup, row, lengths, words, 0, 4));
  }
  return requests;
}

void expect_answers(const std::map<int64_t, batch::Finished>& found,
                    const std::map<int64_t, batch::Finished>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [row, want] : wanted) {
    SCOPED_TRACE(fmt::format("row {}", row));
    ASSERT_EQ(found.at(row).state, io::TurnState::done) << found.at(row).result.error;
    const io::TurnResult &got = found.at(row).result, &one = want.result;
    EXPECT_EQ(got.tokens, one.tokens);
    EXPECT_TRUE(all_close(got.token_logprobs, one.token_logprobs, tolerance));
    EXPECT_TRUE(all_close(got.prompt_logprobs, one.prompt_logprobs, tolerance));
  }
}

TEST(Teams, AnswerAsOneRankDoes) {
  using parallel::Sharding;
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  const std::filesystem::path model = golden("llama-gqa-fp32");
  ReplicaSettings settings;
  settings.max_batch_tokens = 64;
  settings.max_sequences = 5;
  settings.logprobs = 2;
  settings.prompt_logprobs = 1;
  const auto wanted = run_alone(*world, model, make_requests(), settings);
  uint64_t seed = 0;
  int side_by_side = 0, holders = 0;  // plans and instances
  for (const auto& [sp, tp, shardings] :
       {std::tuple(1, 1, std::vector{Sharding::base}),
        std::tuple(2, 1, std::vector{Sharding::base, Sharding::shift}),
        std::tuple(1, 2, std::vector{Sharding::base, Sharding::sp_tp, Sharding::gathered})}) {
    if (world->size() % (sp * tp) != 0) continue;
    const int instances = world->size() / (sp * tp);
    for (const job::Policy policy : {job::Policy::prefill_first, job::Policy::chunked})
      for (const TestPlace place : {place_of_tests(), TestPlace::separate_nccl}) {
        SCOPED_TRACE(fmt::format("SP {} × TP {}, policy {}, place {}, seed {}", sp, tp,
                                 static_cast<int>(policy), static_cast<int>(place), ++seed));
        ReplicaSettings here = settings;
        here.sp = sp;
        here.tp = tp;
        here.policy = policy;
        here.place = place;
        DealsPlans deal(instances, shardings, seed);
        here.admission = job::KvAdmission::reserve;  // teams are dealt slots that are known at once
        here.change_plan = [&](schedule::Plan& plan) { deal(plan); };
        const auto found = run_requests(*world, model, make_requests(), here);
        expect_answers(found, wanted);
        side_by_side += deal.side_by_side;
        holders += deal.holders;
      }
  }
  if (world->size() == 1) return;
  EXPECT_GT(side_by_side, 5);
  EXPECT_GT(holders, 5);
}

/// Each request on instances of its own, as many as it needs: the real scheduler's teams.
TEST(Teams, OfElasticRequestsAnswerAsOneRankDoes) {
  using parallel::Sharding;
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  const std::filesystem::path model = golden("llama-gqa-fp32");
  ReplicaSettings settings;
  settings.max_batch_tokens = 16;
  settings.max_sequences = 7;
  settings.logprobs = 2;
  settings.prompt_logprobs = 1;
  std::vector<Request> requests = make_requests();
  requests.push_back(greedy_request(100, random_tokens(150, vocab, 100), 9));
  const auto wanted = run_alone(*world, model, requests, settings);
  int side_by_side = 0, wide = 0, holders = 0;
  for (const auto& [sp, tp, modes] :
       {std::tuple(1, 1, parallel::PassModes{}),
        std::tuple(2, 1, parallel::PassModes{Sharding::base, Sharding::shift}),
        std::tuple(1, 2, parallel::PassModes{Sharding::sp_tp, Sharding::base})}) {
    if (world->size() % (sp * tp) != 0) continue;
    const int instances = world->size() / (sp * tp);
    for (const job::Policy policy : {job::Policy::prefill_first, job::Policy::chunked})
      for (const TestPlace place : {place_of_tests(), TestPlace::separate_nccl}) {
        SCOPED_TRACE(fmt::format("SP {} × TP {}, policy {}, place {}", sp, tp,
                                 static_cast<int>(policy), static_cast<int>(place)));
        ReplicaSettings here = settings;
        here.elastic = true;
        here.sp = sp, here.tp = tp;
        here.modes = modes;
        here.policy = policy;
        here.place = place;
        here.kv_tokens = (160 + instances - 1) / instances + 20;
        here.on_plan = [&](const schedule::Plan& plan) {
          const parallel::Team& team = plan.teams.front();
          side_by_side += team.size() < instances;
          wide += team.workers() > 1;
          holders += team.holders;
        };
        const auto found = run_requests(*world, model, requests, here);
        expect_answers(found, wanted);
      }
  }
  if (world->size() == 1) return;
  EXPECT_GT(side_by_side, 5);
  EXPECT_GT(wide, 5);
  EXPECT_GT(holders, 5);
}

/// Memory for few of the answers: sequences grow on further instances, and are moved, parked and
/// forgotten.
TEST(Teams, WithMemoryOnDemandAnswerAsOneRankDoes) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  const std::filesystem::path model = golden("llama-gqa-fp32");
  ReplicaSettings settings;
  settings.max_batch_tokens = 16;
  settings.max_sequences = 9;
  settings.logprobs = 2;
  std::vector<Request> requests = make_requests();
  for (int64_t row = 100; row < 106; ++row)
    requests.push_back(greedy_request(row, random_tokens(10 + row % 7, vocab, row), 40));
  const auto wanted = run_alone(*world, model, requests, settings);
  settings.elastic = true;
  settings.block = 4;
  schedule::DemandCounts counts, all;
  settings.demand = &counts;
  uint64_t seed = 0;
  for (const auto& [sp, tp] : {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2)}) {
    if (world->size() % (sp * tp) != 0) continue;
    const int instances = world->size() / (sp * tp);
    for (const int64_t parking_tokens : {schedule::SchedulerLimits{}.parking_tokens, int64_t{0}})
      for (const TestPlace place : {place_of_tests(), TestPlace::separate_nccl}) {
        SCOPED_TRACE(fmt::format("SP {} × TP {}, {} tokens parked, place {}, seed {}", sp, tp,
                                 parking_tokens, static_cast<int>(place), ++seed));
        settings.sp = sp, settings.tp = tp;
        settings.parking_tokens = parking_tokens;
        settings.place = place;
        settings.kv_tokens = (80 + instances - 1) / instances + 10;
        settings.forced_yields = seed;
        expect_answers(run_requests(*world, model, requests, settings), wanted);
        all += counts;
      }
  }
  EXPECT_GT(all.parked_tokens, 0);
  EXPECT_EQ(all.returned_tokens, all.parked_tokens);
  EXPECT_GT(all.forgotten, 0);
  if (world->size() == 1) return;
  EXPECT_GT(all.moved_tokens, 0);
  EXPECT_GT(all.scale_ups, 0);
}

/// Every family, with windows, norms, scalings of positions and numbers of heads of its own.
class ElasticFamilies : public testing::TestWithParam<std::string> {};

TEST_P(ElasticFamilies, AnswerAsOneRankDoes) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  const std::filesystem::path model = golden(GetParam());
  const int64_t words = model::read_config(model).vocab;
  ReplicaSettings settings;
  settings.max_batch_tokens = 16;
  settings.max_sequences = 7;
  settings.logprobs = 2;
  settings.prompt_logprobs = 1;
  std::vector<Request> requests = make_requests(words);
  requests.push_back(greedy_request(100, random_tokens(90, words, 100), 9));
  const auto wanted = run_alone(*world, model, requests, settings);
  settings.elastic = true;
  settings.kv_tokens = (100 + world->size() - 1) / world->size() + 40;
  expect_answers(run_requests(*world, model, requests, settings), wanted);
}

/// Models with recurrent layers: states go on with teams that know nothing of those before, through
/// segments of any length, also shorter than the tail of a convolution, and leave with keys.
class HybridTeams : public testing::TestWithParam<std::string> {};

TEST_P(HybridTeams, AnswerAsOneRankDoesWhereverKeysAre) {
  using parallel::Sharding;
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  const std::filesystem::path model = golden(GetParam());
  const int64_t words = model::read_config(model).vocab;
  ReplicaSettings settings;
  settings.max_batch_tokens = 24;
  settings.max_sequences = 5;
  settings.logprobs = 2;
  settings.prompt_logprobs = 1;
  const auto wanted = run_alone(*world, model, make_requests(words), settings);
  int moved = 0;  // states, with keys
  for (const auto& [sp, tp, seeds] :
       {std::tuple(1, 1, 8), std::tuple(2, 1, 1), std::tuple(1, 2, 1)})
    for (int seed = 0; seed < seeds; ++seed) {
      if (world->size() % (sp * tp) != 0) continue;
      SCOPED_TRACE(fmt::format("SP {} × TP {}, seed {}", sp, tp, seed));
      settings.sp = sp, settings.tp = tp;
      DealsPlans deal(world->size() / (sp * tp), {Sharding::base}, static_cast<uint64_t>(seed),
                      Keys::move);
      settings.change_plan = [&](schedule::Plan& plan) { deal(plan); };
      expect_answers(run_requests(*world, model, make_requests(words), settings), wanted);
      moved += deal.states_moved;
    }
  if (world->size() > 1) {
    EXPECT_GT(moved, 5);
  }
}

INSTANTIATE_TEST_SUITE_P(All, HybridTeams,
                         testing::Values("qwen3next-delta", "qwen35-tied", "granitehybrid-experts",
                                         "nemotronh-blocks"),
                         name_of_model);

/// Rows travel to experts inside each instance.
TEST(Teams, WhoseExpertsAreDealtOutAnswerAsOneRankDoes) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(200));
  const std::filesystem::path model = golden("qwen3moe-raw-step2");
  const int64_t words = model::read_config(model).vocab;
  ReplicaSettings settings;
  settings.max_batch_tokens = 16;
  settings.max_sequences = 7;
  settings.logprobs = 2;
  settings.prompt_logprobs = 1;
  const std::vector<Request> requests = make_requests(words);
  const auto wanted = run_alone(*world, model, requests, settings);
  if (world->size() % 2 != 0) return;
  settings.elastic = true;
  settings.kv_tokens = 120;
  settings.ep = 2;
  for (const auto& [sp, tp] : {std::pair(2, 1), std::pair(1, 2)}) {
    SCOPED_TRACE(fmt::format("SP {} × TP {}", sp, tp));
    settings.sp = sp, settings.tp = tp;
    expect_answers(run_requests(*world, model, requests, settings), wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ElasticFamilies,
    testing::Values("glm-partial-rope", "internlm2-dynamic-bias", "llama-mqa", "llama-mha-tied",
                    "llama-odd-sizes", "llama-rope-dynamic", "llama-rope-yarn", "mistral-window16",
                    "qwen2-biases", "qwen2-window-upper-layer", "qwen3-qknorm-tied",
                    "olmo3-window-yarn", "gemma3-windows", "phi3-longrope", "qwen3moe-raw-step2",
                    "gptoss-bf16", "glm4moe-groups", "minimaxm2-allheads", "afmoe-gates",
                    "deepseek3-groups", "glm4moelite-direct", "mistral4-temperature",
                    "llama4-chunks", "qwen2moe-shared-gate", "gemma4-keys-as-values",
                    "gemma4-shared-keys", "gemma4-mixture", "qwen3next-delta", "qwen35-tied",
                    "granitehybrid-experts", "granitehybrid-dense", "nemotronh-blocks"),
    name_of_model);

}  // namespace
}  // namespace pecia::test
