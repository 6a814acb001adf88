// SPDX-License-Identifier: Apache-2.0
/// From when the times of a request count that arrives while the run goes on.

#include <gtest/gtest.h>

#include "tests/schedule/fake_replica.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using schedule::Scheduler;
using schedule::SchedulerLimits;

SchedulerLimits limits_of(int64_t max_sequences) {
  SchedulerLimits limits;
  limits.kv_tokens = 100, limits.max_positions = 1000;
  limits.max_sequences = max_sequences, limits.max_batch_tokens = 64;
  return limits;
}

/// Turns of 5 prompt tokens.
Request request_of(io::Followup followup, const std::vector<int32_t>& new_tokens,
                   std::optional<double> arrival_s) {
  Request request;
  request.followup = followup;
  request.arrival_s = arrival_s;
  for (const int32_t count : new_tokens) {
    auto& turn = request.turns.emplace_back();
    turn.row = static_cast<int64_t>(request.turns.size()) - 1;
    turn.tokens.assign(5, 7);
    turn.max_new_tokens = count;
  }
  return request;
}

struct Pass {
  double begin, end;
};

/// Results by row, of a request that is added at `added` and runs in these passes.
std::map<int64_t, io::TurnResult> times_of(const Request& request, double added,
                                           const std::vector<Pass>& passes) {
  Scheduler scheduler(limits_of(4));
  FakeReplica replica(limits_of(4));
  scheduler.add(request, added);
  for (const Pass& pass : passes) {
    const auto plan = scheduler.next(pass.begin);
    scheduler.commit(plan.value(), replica.execute(*plan), pass.end);
  }
  EXPECT_FALSE(scheduler.next(100));
  std::map<int64_t, io::TurnResult> results;
  for (auto& finished : scheduler.take_finished()) results[finished.row] = finished.result;
  return results;
}

TEST(Arrival, IsWhereQueueAndFirstTokenCountFrom) {
  const Request request = request_of(io::Followup::chain, {2}, 2.5);
  const auto times = times_of(request, 3.5, {{4, 5}, {5, 7}});
  EXPECT_EQ(times.at(0).queue_s, 1.5f);
  EXPECT_EQ(times.at(0).ttft_s, 2.5f);
  EXPECT_EQ(times.at(0).decode_s, 2.0f);
}

TEST(Arrival, OfALaterTurnOfAChainIsTheEndOfTheAnswerBefore) {
  const Request request = request_of(io::Followup::chain, {1, 1}, 2.5);
  const auto times = times_of(request, 3, {{4, 5}, {6, 9}});
  EXPECT_EQ(times.at(0).ttft_s, 2.5f);
  EXPECT_EQ(times.at(1).queue_s, 1.0f);
  EXPECT_EQ(times.at(1).ttft_s, 4.0f);
}

TEST(Arrival, OfAForkBringsAllItsQuestions) {
  const Request request = request_of(io::Followup::fork, {0, 1}, 1.0);
  const auto times = times_of(request, 1.5, {{2, 4}, {5, 6}});
  EXPECT_EQ(times.at(0).queue_s, 1.0f);
  EXPECT_EQ(times.at(1).queue_s, 1.0f) << "the question could begin when the document was read";
  EXPECT_EQ(times.at(1).ttft_s, 5.0f);
}

TEST(Arrival, WithoutOneTheFirstTokenCountsFromTheFirstPass) {
  const Request request = request_of(io::Followup::chain, {1}, std::nullopt);
  const auto times = times_of(request, 3, {{4, 6}});
  EXPECT_EQ(times.at(0).queue_s, 1.0f);
  EXPECT_EQ(times.at(0).ttft_s, 2.0f);
}

TEST(Room, IsForWhatTheNextPassCouldBegin) {
  const auto of_tokens = [](int64_t tokens) {
    Request request = request_of(io::Followup::chain, {10}, 0);
    request.turns[0].tokens.assign(tokens, 7);
    return request;
  };
  Scheduler scheduler(limits_of(2));
  EXPECT_TRUE(scheduler.has_room_for(of_tokens(90)));
  scheduler.add(of_tokens(40), 0);
  EXPECT_TRUE(scheduler.has_room_for(of_tokens(40)));
  EXPECT_FALSE(scheduler.has_room_for(of_tokens(41))) << "51 slots beside the 50 of who waits";
  EXPECT_TRUE(scheduler.has_room_for(of_tokens(91))) << "is to be refused";
  ASSERT_TRUE(scheduler.next(0));
  EXPECT_TRUE(scheduler.has_room_for(of_tokens(40)));
  EXPECT_FALSE(scheduler.has_room_for(of_tokens(41)));
  scheduler.add(of_tokens(10), 0);
  EXPECT_FALSE(scheduler.has_room_for(of_tokens(1))) << "two run or wait";
}

}  // namespace
}  // namespace pecia::test
