// SPDX-License-Identifier: Apache-2.0
/// Cases that are told by hand: what is refused and why, what fits, who goes first.

#include <gtest/gtest.h>

#include <algorithm>

#include "lib/base/core/error.hpp"
#include "tests/schedule/fake_replica.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using batch::Turn;
using schedule::Scheduler;
using schedule::SchedulerLimits;

struct Ask {
  int64_t tokens;
  int32_t new_tokens;
};

/// Rows follow one another from `row` on.
Request request_of(io::Followup followup, int64_t row, const std::vector<Ask>& asks) {
  Request request;
  request.followup = followup;
  for (const Ask& ask : asks) {
    Turn turn;
    turn.row = row++;
    turn.tokens.assign(ask.tokens, static_cast<int32_t>(5 + turn.row));
    turn.max_new_tokens = ask.new_tokens;
    turn.random_key = static_cast<uint64_t>(turn.row);
    request.turns.push_back(std::move(turn));
  }
  return request;
}
Request chain_of(int64_t row, const std::vector<Ask>& asks) {
  return request_of(io::Followup::chain, row, asks);
}
Request fork_of(int64_t row, const std::vector<Ask>& asks) {
  return request_of(io::Followup::fork, row, asks);
}

SchedulerLimits limits_of(int ring_size, int64_t kv_tokens) {
  SchedulerLimits limits;
  limits.ring_size = ring_size;
  limits.kv_tokens = kv_tokens;
  limits.max_sequences = 8;
  limits.max_batch_tokens = 10;
  limits.max_positions = 1000;
  limits.vocab = 100;
  return limits;
}

std::string error_of(const Served& served, int64_t row) {
  return served.rows.at(row).result.error;
}

TEST(TokensNeeded, AreThoseOfTheFullestRank) {
  // Chunks of 10 on 2 ranks: C = ceil(10/4) = 3, so a rank has up to 6; 4 more tokens: 2; 5 new
  // ones: 3.
  EXPECT_EQ(Scheduler(limits_of(2, 100)).tokens_needed(chain_of(0, {{24, 5}})), 6 + 6 + 2 + 3);
  EXPECT_EQ(Scheduler(limits_of(1, 100)).tokens_needed(chain_of(0, {{24, 5}})), 29);
  // The last token of an answer is fed with the next turn.
  EXPECT_EQ(Scheduler(limits_of(1, 100)).tokens_needed(chain_of(0, {{24, 5}, {3, 2}})),
            29 + 1 + 3 + 2);
  // A fork runs with room for its largest branch.
  EXPECT_EQ(Scheduler(limits_of(1, 100)).tokens_needed(fork_of(0, {{24, 0}, {3, 2}, {1, 9}})),
            24 + 10);
}

TEST(Refused, NamesTheSlotsNeededAndThere) {
  const auto served = serve(limits_of(1, 28), {chain_of(0, {{24, 5}}), chain_of(1, {{24, 4}})});
  EXPECT_EQ(error_of(served, 0),
            "needs 29 KV slots on each rank, there are 28: raise kv.memory or use more ranks (cp), "
            "then --retry-failed; a narrower kv.dtype needs another output folder");
  EXPECT_EQ(served.rows.at(0).state, io::TurnState::failed);
  EXPECT_EQ(served.rows.at(0).result.finish_reason, io::FinishReason::failed);
  EXPECT_EQ(served.rows.at(1).state, io::TurnState::done);
}

TEST(Refused, IsOnlyTheBranchThatNeverFits) {
  const auto served = serve(limits_of(1, 30), {fork_of(0, {{20, 0}, {5, 5}, {5, 6}, {1, 1}})});
  EXPECT_EQ(error_of(served, 0) + error_of(served, 1) + error_of(served, 3), "");
  EXPECT_EQ(error_of(served, 2).substr(0, 16), "needs 31 KV slot");
}

TEST(Refused, IsAForkWhoseStemNeverFits) {
  const auto served = serve(limits_of(1, 30), {fork_of(0, {{31, 0}, {1, 1}})});
  EXPECT_EQ(error_of(served, 0).substr(0, 16), "needs 31 KV slot");
  EXPECT_EQ(error_of(served, 1), error_of(served, 0));
  EXPECT_TRUE(served.plans.empty());
}

struct BadTurn : testing::TestWithParam<size_t> {};

TEST_P(BadTurn, FailsWhatSeesItInAChain) {
  Request chain = chain_of(0, {{4, 2}, {4, 2}, {4, 2}});
  chain.turns[GetParam()].refused = "bad";
  const auto served = serve(limits_of(2, 1000), {chain});
  for (size_t turn = 0; turn < 3; ++turn)
    EXPECT_EQ(error_of(served, static_cast<int64_t>(turn)),
              turn < GetParam()    ? ""
              : turn == GetParam() ? "bad"
                                   : "an earlier turn of this request failed: bad");
}

TEST_P(BadTurn, FailsAloneInAForkUnlessItIsTheStem) {
  Request fork = fork_of(0, {{4, 2}, {4, 2}, {4, 2}});
  fork.turns[GetParam()].refused = "bad";
  const auto served = serve(limits_of(2, 1000), {fork});
  for (size_t turn = 0; turn < 3; ++turn)
    EXPECT_EQ(error_of(served, static_cast<int64_t>(turn)),
              turn == GetParam() ? "bad"
              : GetParam() == 0  ? "an earlier turn of this request failed: bad"
                                 : "");
}

INSTANTIATE_TEST_SUITE_P(FirstMiddleLast, BadTurn, testing::Values(0, 1, 2));

TEST(ModelLength, EndsAnAnswerAndRefusesTheTurnAfter) {
  auto limits = limits_of(2, 1000);
  limits.max_positions = 12;
  const auto served = serve(limits, {chain_of(0, {{10, 9}, {1, 1}, {1, 1}})});
  EXPECT_EQ(served.rows.at(0).result.tokens.size(), 2u);
  EXPECT_EQ(served.rows.at(0).result.finish_reason, io::FinishReason::length);
  EXPECT_EQ(error_of(served, 1).substr(0, 59),
            "13 tokens with what came before, the model's length is 12: ");
  EXPECT_EQ(error_of(served, 2), "an earlier turn of this request failed: " + error_of(served, 1));
}

TEST(StopToken, EndsAnAnswerAtItsFirst) {
  auto limits = limits_of(2, 1000);
  const Request request = chain_of(0, {{5, 9}, {3, 9}});
  const int32_t first = next_token(request.turns[0].tokens, request.turns[0].random_key);
  limits.stop_token_ids = {first};
  const auto served = serve(limits, {request});
  EXPECT_EQ(served.rows.at(0).result.tokens, std::vector<int32_t>{first});
  EXPECT_EQ(served.rows.at(0).result.finish_reason, io::FinishReason::stop);
  EXPECT_EQ(served.rows.at(0).result.decode_s, 0);
  EXPECT_EQ(served.rows.at(1).result.cached_tokens, 6) << "the stop token is part of what follows";
}

struct Branches : testing::TestWithParam<int> {};

TEST_P(Branches, RunOneAtATimeWhereNoMoreFit) {
  std::vector<Ask> asks = {{33, 3}};
  for (int branch = 0; branch < GetParam(); ++branch) asks.push_back({1 + branch % 7, branch % 5});
  const Request fork = fork_of(0, asks);
  for (const int ring_size : {1, 2, 3, 8}) {
    auto limits = limits_of(ring_size, 0);
    limits.kv_tokens = Scheduler(limits).tokens_needed(fork);
    expect_same(serve(limits, {fork, fork_of(100, asks)}).rows,
                expected(limits, {fork, fork_of(100, asks)}));
  }
}

INSTANTIATE_TEST_SUITE_P(UpTo20, Branches, testing::Values(0, 1, 2, 3, 7, 20));

TEST(Branches, LeaveRoomForALargerOneOfTheirFamily) {
  // The stem has 10 slots, its branches 2 and 30; the other request takes all that looks free.
  const std::vector<Request> requests = {fork_of(0, {{10, 0}, {1, 1}, {20, 10}}),
                                         chain_of(10, {{5, 23}}), chain_of(11, {{20, 8}})};
  const auto limits = limits_of(1, 10 + 30 + 28);
  expect_same(serve(limits, requests).rows, expected(limits, requests));
}

TEST(Batch, TakesShortPromptsTogether) {
  const auto served = serve(limits_of(1, 1000), {chain_of(0, {{4, 1}}), chain_of(1, {{5, 1}}),
                                                 chain_of(2, {{2, 1}}), chain_of(3, {{1, 1}})});
  ASSERT_EQ(served.plans.size(), 2u);
  EXPECT_EQ(served.plans[0].items.size(), 3u) << "4 + 5 + 1 of 10 tokens";
  EXPECT_EQ(served.plans[1].items.size(), 1u);
}

TEST(WantsMore, UntilABatchIsFull) {
  Scheduler scheduler(limits_of(1, 1000));
  EXPECT_TRUE(scheduler.wants_more());
  scheduler.add(chain_of(0, {{9, 1}}), 0);
  EXPECT_TRUE(scheduler.wants_more());
  scheduler.add(chain_of(1, {{1, 1}}), 0);
  EXPECT_FALSE(scheduler.wants_more()) << "10 of 10 tokens wait";
  EXPECT_EQ(scheduler.next(0)->items.size(), 2u);
  EXPECT_TRUE(scheduler.wants_more());
}

TEST(WantsMore, AsLongAsThereArePlacesAndMemory) {
  auto limits = limits_of(1, 8);
  Scheduler full(limits);
  full.add(chain_of(0, {{2, 6}}), 0);
  EXPECT_FALSE(full.wants_more()) << "all slots are spoken for";
  limits.kv_tokens = 100;
  limits.max_sequences = 1;
  Scheduler narrow(limits);
  narrow.add(chain_of(0, {{2, 6}}), 0);
  EXPECT_FALSE(narrow.wants_more());
}

TEST(Add, RefusesARequestWithoutTurnsOrTokens) {
  Scheduler scheduler(limits_of(1, 100));
  EXPECT_THROW(scheduler.add({}, 0), InvalidArgument);
  EXPECT_THROW(scheduler.add(chain_of(0, {{0, 1}}), 0), InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
