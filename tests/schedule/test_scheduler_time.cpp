// SPDX-License-Identifier: Apache-2.0
/// Starts that are too short for the whole batch: what begins, what ends, and when passes end.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/schedule/fake_replica.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using batch::Turn;
using schedule::PassRates;
using schedule::PassTimes;
using schedule::RateFit;
using schedule::SchedulerLimits;

/// A machine that reads 1000 tokens a second and takes 0.01 s for a decode pass and 1 ms more for
/// each row.
const PassRates reading{0.01, 1e-3, 1e-8}, answering{0.01, 1e-3, 1e-8};

PassTimes times(double factor = 1) {
  const auto scaled = [&](const PassRates& rates) {
    return RateFit({factor * rates.pass_s, factor * rates.row_s, factor * rates.pair_s});
  };
  return {scaled(reading), scaled(answering)};
}

double seconds_of(const schedule::Plan& plan) {
  const auto [prompts, answers] = work_of(plan);
  const PassTimes truth = times();
  return truth.prefill.seconds(prompts) + truth.decode.seconds(answers);
}

Request request(int64_t row, int64_t prompt, int32_t answer) {
  Request made;
  made.turns.resize(1);
  made.turns[0].row = row;
  made.turns[0].tokens.resize(prompt);
  std::iota(made.turns[0].tokens.begin(), made.turns[0].tokens.end(), static_cast<int32_t>(row));
  for (int32_t& token : made.turns[0].tokens) token = 5 + token % 90;
  made.turns[0].max_new_tokens = answer;
  return made;
}

SchedulerLimits limits(double end_s, double estimate = 1, bool keeps_kv = false) {
  SchedulerLimits limits;
  limits.ring_size = 2;
  limits.kv_tokens = 1 << 20;
  limits.max_sequences = 64;
  limits.max_batch_tokens = 512;
  limits.max_positions = 1 << 20;
  limits.vocab = 100;
  limits.time = {end_s, times(estimate), keeps_kv};
  return limits;
}

/// A start of the run on that machine.
struct Start {
  Served served;
  double end_s = 0;  ///< of the last pass
  bool left_for_later = false;
};

/// As the replica's loop does it: an end that is only assumed is forgotten where nothing else is left.
std::optional<schedule::Plan> next_of(schedule::Scheduler& scheduler, double now) {
  scheduler.forget_assumed_end_once_over(now);
  auto plan = scheduler.next(now);
  if (!plan && scheduler.forget_assumed_end()) plan = scheduler.next(now);
  return plan;
}

/// `killed_s`: when somebody ends it without a word.
Start start(const SchedulerLimits& limits, const std::vector<Request>& requests,
            double killed_s = 1e9) {
  schedule::Scheduler scheduler(limits);
  FakeReplica replica(limits);
  Start start;
  for (const Request& request : requests) scheduler.add(request, 0);
  const auto take = [&] {
    for (auto& finished : scheduler.take_finished())
      start.served.rows.emplace(finished.row, std::move(finished));
  };
  while (const auto plan = next_of(scheduler, start.end_s)) {
    take();
    start.served.plans.push_back(*plan);
    PECIA_CHECK(start.served.plans.size() < 100000, "no end");
    start.end_s += seconds_of(*plan);
    if (start.end_s > killed_s) return start;
    scheduler.commit(*plan, replica.execute(*plan), start.end_s);
    take();
  }
  take();
  start.served.partial = scheduler.partial();
  start.left_for_later = scheduler.left_for_later();
  return start;
}

std::vector<Request> open_ones(const std::vector<Request>& requests) {
  std::vector<Request> open;
  for (const Request& each : requests)
    if (std::any_of(each.turns.begin(), each.turns.end(),
                    [](const Turn& turn) { return !turn.finished && turn.refused.empty(); }))
      open.push_back(each);
  return open;
}

/// Rows whose prompts were begun, by the plans.
int64_t begun(const Start& start) {
  int64_t begun = 0;
  for (const auto& plan : start.served.plans) begun += static_cast<int64_t>(plan.added.size());
  return begun;
}

/// Twenty prompts of 900 tokens and answers of 40 take 20 s of reading alone; reading all of them
/// first would leave starts of 5 s without any answer, for ever.
TEST(TimeLimit, EveryShortStartFinishesRequests) {
  for (const double estimate : {0.2, 1.0, 5.0}) {
    std::vector<Request> requests;
    for (int64_t row = 0; row < 20; ++row) requests.push_back(request(row, 900, 40));
    const auto whole = expected(limits(1e9), requests);
    std::map<int64_t, batch::Finished> rows;
    int starts = 0;
    for (; !requests.empty() && starts < 30; ++starts) {
      const Start part = start(limits(5, estimate), requests);
      EXPECT_GT(part.served.rows.size(), 0u) << "start " << starts << " by " << estimate;
      EXPECT_EQ(part.left_for_later, part.served.rows.size() < requests.size());
      // Beside what ends, no more is begun than a wrong estimate takes one pass to show.
      EXPECT_LE(begun(part),
                static_cast<int64_t>(part.served.rows.size()) + (estimate < 1 ? 64 : 1));
      rows.insert(part.served.rows.begin(), part.served.rows.end());
      requests = open_ones(resumed(requests, part.served));
    }
    EXPECT_LE(starts, 8) << "20 s of reading and some of answering in starts of 5 s, by "
                         << estimate;
    ASSERT_EQ(rows.size(), whole.size());
    for (const auto& [row, finished] : whole)
      EXPECT_EQ(rows.at(row).result.tokens, finished.result.tokens) << "row " << row;
  }
}

/// Killed after 5 s each time, and nobody has said so: what earlier starts had is enough to know.
TEST(TimeLimit, IsAssumedWhereItIsNotSaid) {
  std::vector<Request> requests;
  for (int64_t row = 0; row < 20; ++row) requests.push_back(request(row, 900, 40));
  SchedulerLimits by_assumption = limits(4.5);
  by_assumption.time->assumed = true;
  EXPECT_EQ(start(limits(1e9), requests, 5).served.rows.size(), 0u) << "the first one";
  EXPECT_GE(start(by_assumption, requests, 5).served.rows.size(), 3u);
  const Start whole = start(by_assumption, requests);
  EXPECT_EQ(whole.served.rows.size(), 20u) << "but nothing ends this one";
  EXPECT_FALSE(whole.left_for_later);
  EXPECT_LT(whole.end_s, 1.1 * start(limits(1e9), requests).end_s);
}

/// No turn of a request under way, nor a question about a book, is left out for an assumed end.
TEST(TimeLimit, ThatIsAssumedLeavesNothingUndone) {
  Request chain = request(0, 1000, 10);
  chain.turns.push_back(request(1, 3000, 10).turns[0]);
  Request fork = request(2, 2000, 0);
  fork.followup = io::Followup::fork;
  for (int64_t row = 3; row < 20; ++row) fork.turns.push_back(request(row, 20, 30).turns[0]);
  for (const double end_s : {-1.0, 0.1, 1.0, 2.5, 5.0}) {
    SchedulerLimits by_assumption = limits(end_s);
    by_assumption.time->assumed = true;
    const Start all = start(by_assumption, {chain, request(20, 20000, 10), fork});
    EXPECT_EQ(all.served.rows.size(), 21u) << end_s;
    EXPECT_FALSE(all.left_for_later) << end_s;
  }
}

/// Whenever it comes, also where requests have just begun and no pass of them would end in time.
TEST(TimeLimit, ThatIsAssumedLosesNothingThatHasBegun) {
  std::vector<Request> requests;
  for (int64_t row = 0; row < 12; ++row) requests.push_back(request(row, 40 + 90 * row, 5 + row));
  for (const bool keeps_kv : {false, true})
    for (const double estimate : {0.2, 1.0})
      for (double end_s = 0.05; end_s < 3; end_s += 0.05) {
        SchedulerLimits by_assumption = limits(end_s, estimate, keeps_kv);
        by_assumption.time->assumed = true;
        EXPECT_EQ(start(by_assumption, requests).served.rows.size(), 12u)
            << end_s << " s, " << estimate << ", keeps KV: " << keeps_kv;
      }
}

TEST(TimeLimit, IsKept) {
  std::vector<Request> requests;
  for (int64_t row = 0; row < 8; ++row) requests.push_back(request(row, 700 + 300 * row, 30));
  for (const double end_s : {0.5, 1.3, 2.9, 4.2, 7.7})
    EXPECT_LE(start(limits(end_s), requests).end_s, 1.001 * end_s) << end_s;
}

/// By an estimate of a fifth of the time the first pass may be too long, the others are not.
TEST(TimeLimit, IsKeptOnceAPassWasMeasured) {
  std::vector<Request> requests;
  for (int64_t row = 0; row < 8; ++row) requests.push_back(request(row, 3000, 30));
  for (const double end_s : {1.0, 2.9, 7.7})
    EXPECT_LE(start(limits(end_s, 0.2), requests).end_s, 1.03 * end_s) << end_s;
}

TEST(TimeLimit, CutsTheLastChunksInWholeUnits) {
  const Start part = start(limits(2.2, 1, /*keeps_kv=*/true), {request(0, 10000, 10)});
  ASSERT_GT(part.served.plans.size(), 2u);
  EXPECT_EQ(part.served.plans.front().items.front().rows.count, 512);
  int64_t last = 512;
  for (const auto& plan : part.served.plans) last = std::min(last, plan.items.front().rows.count);
  EXPECT_LT(last, 512);
  EXPECT_EQ(last % 4, 0) << "two chunks on each of two ranks";
  EXPECT_GT(part.end_s, 2.0);
  EXPECT_LE(part.end_s, 2.2);
}

/// Cut where bits would show it, never.
TEST(TimeLimit, CutsNoChunkWhereBitsAreKept) {
  SchedulerLimits invariant = limits(2.2, 1, true);
  invariant.layout_invariant = true;
  for (const auto& plan : start(invariant, {request(0, 10000, 10)}).served.plans)
    EXPECT_EQ(plan.items.front().rows.count, 512);
}

/// What no start can answer comes after all that it can, though it is first in the order.
TEST(TimeLimit, LeavesTheTooLongForLast) {
  const std::vector<Request> requests{request(0, 20000, 10), request(1, 400, 10),
                                      request(2, 300, 10)};
  const Start part = start(limits(5), requests);
  EXPECT_EQ(part.served.rows.size(), 2u);
  EXPECT_TRUE(part.left_for_later);
  EXPECT_LT(part.end_s, 2) << "and is not begun in vain";
}

TEST(TimeLimit, BeginsTheTooLongWhereItIsKept) {
  const std::vector<Request> requests{request(0, 20000, 10), request(1, 400, 10)};
  const Start part = start(limits(5, 1, /*keeps_kv=*/true), requests);
  EXPECT_EQ(part.served.rows.size(), 1u);
  EXPECT_GT(part.end_s, 4.5);
}

/// Else a job of long requests alone would never try whether the estimate is right.
TEST(TimeLimit, BeginsTheShortestWhereNothingElseIsLeft) {
  const std::vector<Request> requests{request(0, 900, 10), request(1, 700, 10)};
  const Start part = start(limits(5, 100), requests);
  ASSERT_EQ(part.served.rows.size(), 2u);
  EXPECT_EQ(part.served.plans.front().items.front().rows.count, 64) << "by such an estimate";
}

/// The estimate says that the long one fits; its first passes show that it does not.
TEST(TimeLimit, TakesBackWhatIsTooSlow) {
  std::vector<Request> requests{request(0, 20000, 10)};
  for (int64_t row = 1; row < 5; ++row) requests.push_back(request(row, 500, 10));
  const Start part = start(limits(6, 0.1), requests);
  EXPECT_EQ(part.served.rows.size(), 4u);
  EXPECT_FALSE(part.served.rows.contains(0));
  EXPECT_TRUE(part.left_for_later);
}

TEST(TimeLimit, CountsOnAnswersAsShortAsTheyWere) {
  // Stop tokens end most answers long before their 4000 tokens, 50 s alone.
  std::vector<Request> requests;
  for (int64_t row = 0; row < 30; ++row) requests.push_back(request(row, 100, 4000));
  SchedulerLimits with_stops = limits(60);
  with_stops.stop_token_ids = {stop_token};
  const Start part = start(with_stops, requests);
  EXPECT_EQ(part.served.rows.size(), 30u);
}

/// A book and its questions: one after the other as long as there is time, none begun in vain.
TEST(TimeLimit, AsksAsManyQuestionsAsThereIsTimeFor) {
  Request fork;
  fork.followup = io::Followup::fork;
  fork.turns.resize(40);
  for (size_t turn = 0; turn < fork.turns.size(); ++turn) {
    fork.turns[turn] =
        request(static_cast<int64_t>(turn), turn == 0 ? 2000 : 20, turn == 0 ? 0 : 30).turns[0];
  }
  SchedulerLimits one_by_one = limits(5);
  one_by_one.max_sequences = 2;
  const Start part = start(one_by_one, {fork});
  EXPECT_GT(part.served.rows.size(), 5u);
  EXPECT_LT(part.served.rows.size(), 40u);
  EXPECT_EQ(part.served.partial.size(), 0u);
  EXPECT_TRUE(part.left_for_later);
  EXPECT_LE(part.end_s, 5);
}

TEST(TimeLimit, BeginsNoLaterTurnInVain) {
  Request chain = request(0, 1000, 10);
  chain.turns.push_back(request(1, 3000, 10).turns[0]);
  const Start part = start(limits(2.5), {chain});
  EXPECT_EQ(part.served.rows.size(), 1u);
  EXPECT_TRUE(part.left_for_later);
  EXPECT_LT(part.end_s, 1.5);
}

}  // namespace
}  // namespace pecia::test
