// SPDX-License-Identifier: Apache-2.0
/// Random workloads: whatever the limits, every turn gets the answer that the model gives it alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tests/schedule/fake_replica.hpp"
#include "tests/schedule/random_workload.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using batch::Turn;
using schedule::SchedulerLimits;

struct EveryWorkload : testing::TestWithParam<uint64_t> {};

TEST_P(EveryWorkload, GivesEachTurnItsOwnAnswer) {
  Draw draw(GetParam());
  const auto requests = random_requests(draw);
  const auto limits = random_limits(draw, requests);
  expect_same(serve(limits, requests).rows, expected(limits, requests));
}

TEST_P(EveryWorkload, GivesEachTurnItsOwnAnswerInStages) {
  Draw draw(GetParam());
  const auto requests = random_requests(draw);
  auto limits = random_limits(draw, requests, static_cast<int>(draw(2, 5)));
  limits.objective = job::Objective::throughput;
  limits.tbt_s.reset();
  limits.pair_work = draw.one_in(2) ? 0.01 : 0;
  const Served served = serve(limits, requests);
  expect_same(served.rows, expected(limits, requests));
  EXPECT_LE(served.most_under_way, limits.stages + 1);
}

TEST_P(EveryWorkload, FillsBatchesWithinTheirLimit) {
  Draw draw(GetParam());
  const auto requests = random_requests(draw);
  const auto limits = random_limits(draw, requests);
  for (const auto& plan : serve(limits, requests).plans) {
    std::set<int64_t> sequences;
    for (const auto& item : plan.items)
      EXPECT_TRUE(sequences.insert(item.rows.sequence).second) << "twice in pass " << plan.number;
    const NewTokens tokens = new_tokens(plan);
    if (tokens.prompt > 0)
      EXPECT_LE(tokens.prompt + tokens.decode, batch_tokens(limits)) << "pass " << plan.number;
    else
      EXPECT_EQ(plan.teams.front().ring, limits.ring_size > 1
                                             ? parallel::AttentionExchange::pass_q
                                             : parallel::AttentionExchange::pass_kv);
    if (limits.policy == job::Policy::prefill_first) {
      EXPECT_EQ(std::min(tokens.prompt, tokens.decode), 0) << "pass " << plan.number;
    }
  }
}

/// A fork's prefix never waits with its keys in memory: in every pass from its own last one until
/// it is freed, one of its branches still has rows to come. So there is nothing to move to the
/// host.
void expect_no_prefix_waits(const std::vector<schedule::Plan>& plans) {
  std::map<int64_t, size_t> last_pass;  // by sequence, that has rows of it
  for (size_t pass = 0; pass < plans.size(); ++pass)
    for (const auto& item : plans[pass].items) last_pass[item.rows.sequence] = pass;
  std::map<int64_t, int64_t> parent_of;  // of those whose keys are held
  for (size_t pass = 0; pass < plans.size(); ++pass) {
    for (const int64_t sequence : plans[pass].removed) parent_of.erase(sequence);
    for (const auto& added : plans[pass].added) parent_of[added.sequence] = added.state.parent;
    std::set<int64_t> computing;  // and the prefixes of those
    for (const auto& [sequence, parent] : parent_of)
      if (last_pass.at(sequence) >= pass) computing.insert({sequence, parent});
    for (const auto& [sequence, parent] : parent_of)
      EXPECT_TRUE(computing.contains(sequence)) << sequence << " waits in pass " << pass;
  }
}

TEST_P(EveryWorkload, LetsNoPrefixWait) {
  Draw draw(GetParam());
  for (const bool short_of_slots : {true, false}) {
    const auto requests = random_requests(draw);
    auto limits = random_limits(draw, requests);
    limits.max_sequences = draw(1, 6);
    limits.on_demand = false;
    if (short_of_slots) {
      const schedule::Scheduler counting(limits);
      limits.kv_tokens = 0;
      for (const Request& request : requests)
        limits.kv_tokens = std::max(limits.kv_tokens, counting.tokens_needed(request));
    }
    std::vector<int64_t> arrivals;
    for (size_t i = 0; i < requests.size(); ++i) arrivals.push_back(draw(0, 30));
    const auto served = serve(limits, requests, int64_t{1} << 40, arrivals);
    expect_no_prefix_waits(served.plans);
    expect_same(served.rows, expected(limits, requests));
  }
}

/// As long as no rank's share of a sequence is used up: answers end by stop tokens, early.
TEST_P(EveryWorkload, DealsDecodeRowsEvenly) {
  Draw draw(GetParam());
  auto requests = random_requests(draw);
  for (Request& request : requests)
    for (Turn& turn : request.turns) turn.max_new_tokens = 4000;
  auto limits = random_limits(draw, requests);
  limits.on_demand = false;
  for (const auto& plan : serve(limits, requests).plans) {
    std::vector<int64_t> rows(limits.ring_size);
    for (const auto& item : plan.items) {
      if (item.rows.owner == parallel::PassSequence::balanced) continue;
      EXPECT_EQ(item.rows.count, 1);
      ++rows.at(item.rows.owner);
    }
    const auto [least, most] = std::minmax_element(rows.begin(), rows.end());
    EXPECT_LE(*most - *least, 1) << "pass " << plan.number << ": " << testing::PrintToString(rows);
  }
}

TEST_P(EveryWorkload, ScoresEachPromptTokenOnce) {
  Draw draw(GetParam());
  const auto requests = random_requests(draw);
  auto limits = random_limits(draw, requests);
  limits.prompt_logprobs = 1;
  const auto served = serve(limits, requests);
  int64_t wanted = 0, targets = 0;
  for (const auto& [row, finished] : served.rows)
    for (const float logprob : finished.result.prompt_logprobs) wanted += !std::isnan(logprob);
  for (const auto& plan : served.plans) targets += static_cast<int64_t>(plan.targets.size());
  EXPECT_GE(targets, wanted);
  const bool none_failed = std::all_of(served.rows.begin(), served.rows.end(), [](const auto& row) {
    return row.second.state == io::TurnState::done;
  });
  if (none_failed) {
    EXPECT_EQ(targets, wanted);
  }
}

/// Another run may have other limits, as long as the model is the same.
SchedulerLimits other_limits(Draw& draw, const std::vector<Request>& requests,
                             const SchedulerLimits& before) {
  SchedulerLimits limits = random_limits(draw, requests);
  limits.max_positions = before.max_positions;
  limits.logprobs = before.logprobs;
  limits.prompt_logprobs = before.prompt_logprobs;
  return limits;
}

TEST_P(EveryWorkload, GivesTheSameWhenStoppedAndContinued) {
  Draw draw(GetParam());
  const auto requests = random_requests(draw);
  auto limits = random_limits(draw, requests);
  const auto wanted = expected(limits, requests);
  auto open = requests;
  std::map<int64_t, batch::Finished> rows;
  for (const int64_t passes : {draw(0, 40), draw(0, 40), int64_t{1} << 40}) {
    const Served served = serve(limits, open, passes);
    for (const auto& [row, finished] : served.rows)
      EXPECT_TRUE(rows.emplace(row, finished).second) << "row " << row << " is recorded again";
    open = resumed(open, served);
    limits = other_limits(draw, open, limits);
  }
  expect_same(rows, wanted);
}

TEST_P(EveryWorkload, KeepsTimesThatAddUp) {
  Draw draw(GetParam());
  const auto requests = random_requests(draw);
  const auto limits = random_limits(draw, requests);
  const auto served = serve(limits, requests);
  for (const Request& request : requests) {
    const bool fork = request.followup == io::Followup::fork;
    for (size_t i = 0; i < request.turns.size(); ++i) {
      const auto& [row, state, result] = served.rows.at(request.turns[i].row);
      EXPECT_GE(result.queue_s, 0);
      EXPECT_GE(result.ttft_s, 0);
      EXPECT_GE(result.decode_s, 0);
      EXPECT_EQ(result.decode_s > 0, result.tokens.size() > 1);
      if (result.tokens.empty()) continue;
      EXPECT_GT(result.ttft_s, 0);
      EXPECT_GT(result.prefill_compute_s, 0);
      EXPECT_GT(result.prefill_comm_s, 0);
      // A branch is ready when its stem is, which shows only where the stem is a row that ends
      // there.
      if (fork && i > 0 && served.rows.at(request.turns[0].row).result.tokens.size() > 1) continue;
      const double ready = i == 0 ? 0 : served.finished_at.at(request.turns[fork ? 0 : i - 1].row);
      EXPECT_EQ(result.queue_s + result.ttft_s + result.decode_s,
                served.finished_at.at(row) - ready)
          << "row " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EveryWorkload, testing::Range(uint64_t{0}, uint64_t{120}));

}  // namespace
}  // namespace pecia::test
