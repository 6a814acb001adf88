// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/schedule/plan.hpp"

namespace pecia::schedule {
namespace {

TEST(Plan, TravelsWhole) {
  Plan plan;
  plan.number = 41;
  plan.last = 1;
  plan.wait_s = 0.25;
  plan.teams = {{{2, 0}, 1, parallel::AttentionExchange::pass_q, parallel::Sharding::shift}, {{1}}};
  plan.removed = {3, 4};
  plan.added = {{7, {2, 0, {100, 0, 30}, {}}, 1}};
  kernels::SamplingParams params;
  params.temperature = 0.5f, params.top_k = 3;
  plan.turns = {{7, params, 0xfedcba9876543210u, 12}};
  plan.items.push_back({{7, 12, 2, 1}, {5, 6}, 14, 0});
  plan.items.back().longest = 99;
  plan.items.push_back({{8, 0, 0}, {}, 0, -1, 1});
  plan.targets = {{0, 6, 12}};

  const auto copy = from_bytes<Plan>(to_bytes(plan));
  EXPECT_EQ(copy.number, 41);
  EXPECT_EQ(copy.last, 1);
  EXPECT_EQ(copy.wait_s, 0.25);
  ASSERT_EQ(copy.teams.size(), 2u);
  EXPECT_EQ(copy.teams[0].instances, (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(copy.teams[0].holders, 1);
  EXPECT_EQ(copy.teams[0].ring, parallel::AttentionExchange::pass_q);
  EXPECT_EQ(copy.teams[0].sharding, parallel::Sharding::shift);
  EXPECT_EQ(copy.removed, plan.removed);
  ASSERT_EQ(copy.added.size(), 1u);
  EXPECT_EQ(copy.added[0].sequence, 7);
  EXPECT_EQ(copy.added[0].state.parent, 2);
  EXPECT_EQ(copy.added[0].state.reserved, (std::vector<int64_t>{100, 0, 30}));
  EXPECT_EQ(copy.added[0].keeps_tokens, 1);
  ASSERT_EQ(copy.turns.size(), 1u);
  EXPECT_EQ(copy.turns[0].params.temperature, 0.5f);
  EXPECT_EQ(copy.turns[0].params.top_k, 3);
  EXPECT_EQ(copy.turns[0].random_key, 0xfedcba9876543210u);
  EXPECT_EQ(copy.turns[0].answer_begin, 12);
  ASSERT_EQ(copy.items.size(), 2u);
  EXPECT_EQ(copy.items[0].rows.first, 12);
  EXPECT_EQ(copy.items[0].rows.owner, 1);
  EXPECT_EQ(copy.items[0].tokens, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(copy.items[0].prompt_end, 14);
  EXPECT_EQ(copy.items[0].longest, 99);
  EXPECT_EQ(copy.items[0].sampled_index, 0);
  EXPECT_EQ(copy.items[0].team, 0);
  EXPECT_EQ(copy.items[1].team, 1);
  EXPECT_EQ(copy.items[1].rows.owner, parallel::PassSequence::balanced);
  EXPECT_EQ(copy.items[1].sampled_index, -1);
  ASSERT_EQ(copy.targets.size(), 1u);
  EXPECT_EQ(copy.targets[0].token, 6);
  EXPECT_EQ(copy.targets[0].position, 12);
}

TEST(Outcome, TravelsWhole) {
  Outcome outcome;
  outcome.sampled = {{1}, {17}, {-0.5f}, {17, 3}, {-0.5f, -1.5f}};
  outcome.targets = {{4, 5}, {}, {-1.0f, -2.0f}, {}, {}};
  outcome.compute_s = 0.25, outcome.comm_s = 0.125;
  const auto copy = from_bytes<Outcome>(to_bytes(outcome));
  EXPECT_EQ(copy.sampled.which, outcome.sampled.which);
  EXPECT_EQ(copy.sampled.tokens, outcome.sampled.tokens);
  EXPECT_EQ(copy.sampled.logprobs, outcome.sampled.logprobs);
  EXPECT_EQ(copy.sampled.top_tokens, outcome.sampled.top_tokens);
  EXPECT_EQ(copy.sampled.top_logprobs, outcome.sampled.top_logprobs);
  EXPECT_EQ(copy.targets.which, outcome.targets.which);
  EXPECT_EQ(copy.targets.logprobs, outcome.targets.logprobs);
  EXPECT_EQ(copy.compute_s, 0.25);
  EXPECT_EQ(copy.comm_s, 0.125);
}

TEST(Plan, IsRefusedWhenCutOff) {
  Plan plan;
  plan.items.push_back({{7, 12, 2, 1}, {5, 6}, 14, 0});
  auto bytes = to_bytes(plan);
  bytes.pop_back();
  EXPECT_THROW(from_bytes<Plan>(bytes), Error);
}

TEST(Plan, GivesEachTeamItsItemsInOrder) {
  Plan plan;
  plan.teams = {{{0, 1}}, {{2}}};
  for (const int32_t team : {1, 0, 1})
    plan.items.push_back({{std::ssize(plan.items), 0, 1}, {5}, 1, -1, team});
  const auto passes = plan.passes();
  ASSERT_EQ(passes.size(), 2u);
  ASSERT_EQ(passes[0].rows.size(), 1u);
  EXPECT_EQ(passes[0].rows[0].sequence, 1);
  ASSERT_EQ(passes[1].rows.size(), 2u);
  EXPECT_EQ(passes[1].rows[1].sequence, 2);
}

/// Sequence 7 was forgotten, and has been read again by other instances: instance 2 hears of both at once.
TEST(Plan, ShortensNothingThatAnInstanceForgets) {
  Plan plan;
  plan.teams = {{{0, 1, 2}}};
  plan.shortened = {{7, 32}, {8, 40}};
  plan.left = {{7, 2, 0}, {8, 1, 1}};
  const auto sequences = [&](int instance) {
    std::vector<int64_t> found;
    for (const ShortenedSequence& of : plan.shortened_at(instance)) found.push_back(of.sequence);
    return found;
  };
  EXPECT_EQ(sequences(0), (std::vector<int64_t>{7, 8}));
  EXPECT_EQ(sequences(1), (std::vector<int64_t>{7, 8})) << "what is parked is shortened first";
  EXPECT_EQ(sequences(2), (std::vector<int64_t>{8}));
  plan.receiving = {{3}, {{8, 3, 0}}, {}, {}};
  EXPECT_EQ(sequences(3), (std::vector<int64_t>{7}));
}

/// Keys of 1000 B a token and states of 1e6 B over a link of 1e6 B/s, and passes that take no time.
TEST(Plan, TakesAsLongAsKeysAndStatesNeedToLeave) {
  const PassTimes alone{RateFit({1e-6, 1e-8, 1e-14}), RateFit({1e-6, 1e-8, 1e-14})};
  const TeamTimes times(
      alone, {.bytes_per_second = 1e6, .kv_bytes_per_token = 1000, .layers = 1, .state_bytes = 1e6},
      3);
  Plan plan;
  plan.teams = {{{0, 1}}};
  plan.items.push_back({{7, 0, 500}, std::vector<int32_t>(500), 500});
  const auto copy_to = [](int32_t instance, int64_t tokens) {
    return parallel::KeyCopy{7, 8, instance, 0, tokens, {2}, {{0, {{0, tokens, 1}}}}};
  };
  EXPECT_LT(expected_seconds(plan, times), 3) << "its own keys and state go round the ring";
  plan.receiving.copies = {copy_to(2, 3000), copy_to(2, 1000)};
  EXPECT_NEAR(expected_seconds(plan, times), 4, 1e-9);
  plan.receiving.copies.back().state_from = 0;
  EXPECT_NEAR(expected_seconds(plan, times), 5, 1e-9);
  plan.receiving.copies.back().state_from = 1;
  EXPECT_NEAR(expected_seconds(plan, times), 4, 1e-9) << "another instance sends it";
}

}  // namespace
}  // namespace pecia::schedule
