// SPDX-License-Identifier: Apache-2.0
/// Which tensor travels: fixed by the job, or by rule for each chunk of a prompt.

#include <gtest/gtest.h>

#include <cmath>

#include "lib/base/core/error.hpp"
#include "tests/schedule/fake_replica.hpp"
#include "tests/schedule/random_workload.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using job::Policy;
using parallel::AttentionExchange;
using parallel::PassSequence;
using schedule::SchedulerLimits;

/// Two ranks whose keys never hide, with a limit close to 2·2·2 B/(8·4 B) = ¼ of new tokens.
SchedulerLimits limits_by_rule() {
  SchedulerLimits limits;
  limits.ring_size = 2;
  limits.kv_tokens = 10000;
  limits.max_sequences = 8;
  limits.max_batch_tokens = 1000;
  limits.max_positions = 10000;
  limits.vocab = 100;
  limits.ring.reset();
  limits.ring_shape = {8, 2, 2, 4, 4};
  limits.ring_rates = {1e15, 1e6, 1e6};
  return limits;
}

Request chain_of(int64_t row, const std::vector<int64_t>& tokens, int32_t new_tokens) {
  Request request;
  for (const int64_t count : tokens) {
    batch::Turn turn;
    turn.row = row++;
    turn.tokens.assign(count, 7);
    turn.max_new_tokens = new_tokens;
    request.turns.push_back(std::move(turn));
  }
  return request;
}

TEST(RingByRule, IsChosenForEachTurn) {
  // 100 new of 100; 20 of 121, under a quarter; 100 of 222.
  const auto served = serve(limits_by_rule(), {chain_of(0, {100, 20, 100}, 1)});
  ASSERT_EQ(served.plans.size(), 3u);
  EXPECT_EQ(served.plans[0].teams.front().ring, AttentionExchange::pass_kv);
  EXPECT_EQ(served.plans[1].teams.front().ring, AttentionExchange::pass_q);
  EXPECT_EQ(served.plans[2].teams.front().ring, AttentionExchange::pass_kv);
  ASSERT_EQ(served.chunk_rings[1].size(), 1u);
  const auto& [sequence, decision] = served.chunk_rings[1][0];
  EXPECT_EQ(sequence, 0);
  EXPECT_EQ(decision.in.load.new_tokens, 21) << "with the last token of the answer before";
  EXPECT_EQ(decision.in.load.cached_tokens(), 100);
  EXPECT_EQ(decision.in.ranks, 2);
  EXPECT_EQ(decision.in.rates.flops, 1e15);
  EXPECT_EQ(decision.ring, AttentionExchange::pass_q);
  EXPECT_NEAR(decision.miss_rate_limit, 0.25, 1e-6);
}

TEST(RingByRule, KeepsPromptsThatDisagreeApart) {
  // Once both first turns are done, one request goes on with few new tokens and one with many.
  const auto served =
      serve(limits_by_rule(),
            {chain_of(0, {100, 5}, 1), chain_of(10, {100, 200}, 1), chain_of(20, {200, 4}, 1)});
  ASSERT_EQ(served.plans.size(), 3u);
  EXPECT_EQ(served.plans[0].items.size(), 3u);
  EXPECT_EQ(served.plans[1].teams.front().ring, AttentionExchange::pass_q);
  ASSERT_EQ(served.plans[1].items.size(), 2u);
  EXPECT_EQ(served.plans[1].items[0].rows.sequence, 0);
  EXPECT_EQ(served.plans[1].items[1].rows.sequence, 2);
  EXPECT_EQ(served.plans[2].teams.front().ring, AttentionExchange::pass_kv);
  EXPECT_EQ(served.plans[2].items.size(), 1u);
}

TEST(RingByRule, CountsTheKeysOfDecodesThatRide) {
  // Alone 100 new tokens of 100 would let keys travel; beside a decode after 1000 they must not.
  auto limits = limits_by_rule();
  limits.policy = Policy::chunked;
  limits.max_batch_tokens = 1100;
  const auto served = serve(limits, {chain_of(0, {1000}, 3), chain_of(1, {100}, 1)}, 100, {0, 1});
  EXPECT_EQ(served.plans.at(0).teams.front().ring, AttentionExchange::pass_kv);
  EXPECT_EQ(served.plans.at(1).teams.front().ring, AttentionExchange::pass_q);
  ASSERT_EQ(served.plans.at(1).items.size(), 2u);
  ASSERT_EQ(served.chunk_rings.at(1).size(), 1u);
  EXPECT_EQ(served.chunk_rings.at(1)[0].sequence, 1);
  EXPECT_EQ(served.chunk_rings.at(1)[0].decision.in.load.keys, 1001 + 100);
  EXPECT_TRUE(served.chunk_rings.at(2).empty()) << "nothing is chosen for decodes alone";
}

TEST(RingByRule, MayBeFittedToTimes) {
  // Keys travel with 40 new tokens or more, whatever the miss rate.
  auto limits = limits_by_rule();
  limits.fitted_rule = parallel::FittedRule{1, 0, -std::log(40.0)};
  const auto served = serve(limits, {chain_of(0, {30, 20, 50}, 1)});
  ASSERT_EQ(served.plans.size(), 3u);
  EXPECT_EQ(served.plans[0].teams.front().ring, AttentionExchange::pass_q) << "rule B: pass_kv";
  EXPECT_EQ(served.plans[1].teams.front().ring, AttentionExchange::pass_q);
  EXPECT_EQ(served.plans[2].teams.front().ring, AttentionExchange::pass_kv) << "51 of 102";
  const auto& decision = served.chunk_rings[0].at(0).decision;
  EXPECT_NEAR(decision.h.value(), std::log(decision.in.load.new_tokens / 40.0), 1e-12);
}

struct EveryRingSetting : testing::TestWithParam<uint64_t> {};

TEST_P(EveryRingSetting, HoldsForEveryPass) {
  Draw draw(5000 + GetParam());
  const auto requests = random_requests(draw);
  const auto limits = random_limits(draw, requests);
  const auto served = serve(limits, requests);
  for (size_t i = 0; i < served.plans.size(); ++i) {
    const auto& plan = served.plans[i];
    SCOPED_TRACE(fmt::format("pass {}", plan.number));
    const bool ruled = limits.ring_size > 1 && !limits.ring;
    if (limits.ring_size == 1) {
      EXPECT_EQ(plan.teams.front().ring, AttentionExchange::pass_kv);
    } else if (new_tokens(plan).prompt == 0) {
      EXPECT_EQ(plan.teams.front().ring, AttentionExchange::pass_q);
    } else if (!ruled) {
      EXPECT_EQ(plan.teams.front().ring, *limits.ring);
    }
    parallel::RingLoad riders;
    size_t chunks = 0;
    for (const auto& item : plan.items)
      if (item.rows.owner != PassSequence::balanced) riders.add(item.rows.count, item.rows.first);
    for (const auto& item : plan.items) {
      if (item.rows.owner != PassSequence::balanced || !ruled) continue;
      parallel::RingLoad load = riders;
      load.add(item.rows.count, item.rows.first);
      EXPECT_EQ(
          parallel::rule_b({load, limits.ring_size, limits.ring_shape, limits.ring_rates}).ring,
          plan.teams.front().ring);
      ASSERT_LT(chunks, served.chunk_rings[i].size());
      EXPECT_EQ(served.chunk_rings[i][chunks++].sequence, item.rows.sequence);
    }
    EXPECT_EQ(served.chunk_rings[i].size(), chunks);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EveryRingSetting, testing::Range(uint64_t{0}, uint64_t{100}));

TEST(RingByRule, NeedsRates) {
  auto limits = limits_by_rule();
  limits.ring_rates = {};
  EXPECT_THROW(schedule::Scheduler{limits}, InvalidArgument);
  limits.ring_size = 1;
  EXPECT_NO_THROW(schedule::Scheduler{limits});
}

}  // namespace
}  // namespace pecia::test
