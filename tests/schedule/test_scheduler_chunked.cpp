// SPDX-License-Identifier: Apache-2.0
/// Chunked prefill: decodes never wait, prompts get what is left, memory holds whatever the chunks.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lib/ranks/parallel/ring.hpp"
#include "tests/schedule/fake_replica.hpp"
#include "tests/schedule/random_workload.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using job::Policy;
using parallel::PassSequence;
using schedule::SchedulerLimits;

SchedulerLimits chunked_limits(int ring_size, int64_t max_batch_tokens) {
  SchedulerLimits limits;
  limits.ring_size = ring_size;
  limits.kv_tokens = 1000;
  limits.max_sequences = 8;
  limits.max_batch_tokens = max_batch_tokens;
  limits.max_positions = 1000;
  limits.vocab = 100;
  limits.policy = Policy::chunked;
  return limits;
}

/// "sequence:tokens" of each item, decode rows with a 'd'.
std::string text_of(const schedule::Plan& plan) {
  std::string text;
  for (const auto& item : plan.items)
    text += fmt::format("{}{}:{}{}", text.empty() ? "" : " ", item.rows.sequence, item.rows.count,
                        item.rows.owner == PassSequence::balanced ? "" : "d");
  return text;
}

/// All that the ranks do of a plan.
std::string told(const schedule::Plan& plan) {
  std::string text =
      fmt::format("{} ring {}", plan.number, static_cast<int>(plan.teams.front().ring));
  for (const int64_t removed : plan.removed) text += fmt::format(" −{}", removed);
  for (const auto& added : plan.added)
    text += fmt::format(" +{} of {} with {}", added.sequence, added.state.parent,
                        testing::PrintToString(added.state.reserved));
  for (const auto& item : plan.items)
    text += fmt::format(" {} from {}: {} owner {} index {}", item.rows.sequence, item.rows.first,
                        testing::PrintToString(item.tokens), item.rows.owner, item.sampled_index);
  for (const auto& target : plan.targets)
    text += fmt::format(" ?{}@{}", target.item, target.position);
  return text;
}

TEST(Chunked, FillsWhatDecodesLeaveOfTheBatch) {
  const auto served = serve(chunked_limits(1, 10), {ask(0, 4, 5), ask(1, 25, 2), ask(2, 3, 1)});
  std::vector<std::string> passes;
  for (const auto& plan : served.plans) passes.push_back(text_of(plan));
  // 10 in the batch; chunks of prompts that go on are even numbers, two for each of one rank.
  EXPECT_EQ(passes, (std::vector<std::string>{"0:4 1:6", "0:1d 1:8", "0:1d 1:8", "0:1d 1:3 2:3",
                                              "0:1d 1:1d"}));
}

TEST(Chunked, CutsPromptsWhereEveryRankOwnsAsMany) {
  const auto served = serve(chunked_limits(3, 20), {ask(0, 50, 2), ask(1, 9, 1)});
  std::vector<std::string> passes;
  for (const auto& plan : served.plans) passes.push_back(text_of(plan));
  EXPECT_EQ(passes, (std::vector<std::string>{"0:18", "0:18", "0:14 1:6", "0:1d 1:3"}));
}

TEST(Chunked, GetsOnWithABatchSmallerThanTheRing) {
  const auto served = serve(chunked_limits(4, 1), {ask(0, 20, 3)});
  EXPECT_EQ(text_of(served.plans.at(0)), "0:8");
  EXPECT_EQ(served.rows.at(0).result.tokens.size(), 3u);
}

TEST(Chunked, LetsNoShortPromptOvertakeALongOne) {
  // Four decodes leave 2 of 6 tokens: too few for a chunk of the long prompt on 2 ranks.
  auto limits = chunked_limits(2, 6);
  std::vector<Request> requests;
  for (int64_t row = 0; row < 4; ++row) requests.push_back(ask(row, 1, 4));
  requests.push_back(ask(4, 100, 1));
  requests.push_back(ask(5, 1, 1));
  const auto served = serve(limits, requests);
  for (size_t pass = 1; pass < 4; ++pass)
    EXPECT_EQ(text_of(served.plans[pass]), "0:1d 1:1d 2:1d 3:1d");
  EXPECT_EQ(text_of(served.plans.at(4)), "4:4 5:1");
}

/// Slots that a prompt reserves hold it however it is cut: all but its last chunk are whole units.
TEST(Chunked, ReservesEnoughForEveryDivision) {
  for (const int ring_size : {1, 2, 3, 4, 8})
    for (int64_t tokens = 1; tokens <= 100; ++tokens) {
      const int64_t unit = 2 * ring_size;
      const int64_t reserved =
          schedule::Scheduler(chunked_limits(ring_size, 10)).tokens_needed(ask(0, tokens, 0));
      int64_t most = 0;
      for (int64_t last = tokens; last > 0; last -= unit)
        most = std::max(most,
                        (tokens - last) / ring_size + parallel::max_owned_tokens(last, ring_size));
      EXPECT_LE(most, reserved) << tokens << " on " << ring_size;
      EXPECT_LE(reserved, most + 1) << tokens << " on " << ring_size << ": no slot is wasted";
    }
}

/// A workload under the chunked policy whose requests come while others run. FakeReplica refuses a
/// rank that goes beyond its reservation and memory given twice.
struct EveryArrival : testing::TestWithParam<uint64_t> {
  EveryArrival() {
    Draw draw(1000 + GetParam());
    requests = random_requests(draw);
    for (Request& request : requests)
      for (auto& turn : request.turns) turn.refused.clear();
    limits = random_limits(draw, requests);
    limits.policy = Policy::chunked;
    limits.kv_tokens = 0;
    const schedule::Scheduler counting(limits);
    for (const Request& request : requests)
      limits.kv_tokens = std::max(limits.kv_tokens, counting.tokens_needed(request));
    limits.kv_tokens *= draw.of<int64_t>({1, 1, 2, 5});
    for (size_t i = 0; i < requests.size(); ++i) arrivals.push_back(draw(0, 60));
  }
  Served served() const {
    return serve(limits, requests, std::numeric_limits<int64_t>::max(), arrivals);
  }

  std::vector<Request> requests;
  SchedulerLimits limits;
  std::vector<int64_t> arrivals;
};

TEST_P(EveryArrival, GivesEachTurnItsOwnAnswer) {
  expect_same(served().rows, expected(limits, requests));
}

TEST_P(EveryArrival, GivesTheSamePlansAgain) {
  const auto once = served().plans, again = served().plans;
  ASSERT_EQ(once.size(), again.size());
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(told(once[i]), told(again[i]));
}

TEST_P(EveryArrival, KeepsToTheBatch) {
  for (const auto& plan : served().plans) {
    const NewTokens tokens = new_tokens(plan);
    EXPECT_LE(tokens.prompt + tokens.decode, batch_tokens(limits)) << "pass " << plan.number;
  }
}

TEST_P(EveryArrival, FeedsPromptsOnceAndInOrder) {
  std::map<int64_t, int64_t> fed;  // tokens by sequence
  for (const auto& plan : served().plans) {
    for (const auto& added : plan.added)
      fed[added.sequence] =
          added.state.parent == schedule::NewSequence::no_parent ? 0 : fed.at(added.state.parent);
    for (const auto& item : plan.items) {
      EXPECT_EQ(item.rows.first, fed.at(item.rows.sequence)) << "pass " << plan.number;
      fed[item.rows.sequence] += item.rows.count;
    }
  }
}

TEST_P(EveryArrival, DecodesInEveryPass) {
  limits.on_demand = false;
  struct Sampled {
    size_t pass;
    int64_t index;
  };
  std::map<int64_t, Sampled> last;  // by sequence
  const auto plans = served().plans;
  for (size_t pass = 0; pass < plans.size(); ++pass)
    for (const auto& item : plans[pass].items) {
      if (item.sampled_index < 0) continue;
      const auto before = last.find(item.rows.sequence);
      if (before != last.end() && item.sampled_index == before->second.index + 1) {
        EXPECT_EQ(pass, before->second.pass + 1)
            << "token " << item.sampled_index << " of sequence " << item.rows.sequence;
      }
      last[item.rows.sequence] = {pass, item.sampled_index};
    }
}

/// A pass without prompts has so many decodes that no unit fits; else the oldest prompt is in it.
TEST_P(EveryArrival, FeedsTheOldestPromptWhereverThereIsRoom) {
  for (Request& request : requests) {
    request.followup = io::Followup::chain;
    request.turns.resize(1);
  }
  limits.on_demand = false;
  limits.objective = job::Objective::throughput;
  const auto plans = served().plans;
  std::map<int64_t, int64_t> owed;  // prompt tokens still to be fed, by sequence
  for (const auto& plan : plans)
    for (const auto& item : plan.items)
      if (item.rows.owner == PassSequence::balanced) owed[item.rows.sequence] += item.rows.count;
  std::set<int64_t> begun;
  const int64_t unit = 2 * limits.ring_size;
  for (const auto& plan : plans) {
    for (const auto& added : plan.added) begun.insert(added.sequence);
    const auto oldest = std::find_if(begun.begin(), begun.end(),
                                     [&](int64_t sequence) { return owed[sequence] > 0; });
    const NewTokens tokens = new_tokens(plan);
    if (oldest != begun.end() && tokens.prompt == 0) {
      EXPECT_LT(batch_tokens(limits) - tokens.decode, std::min(unit, owed[*oldest]))
          << "pass " << plan.number;
    } else if (oldest != begun.end()) {
      EXPECT_TRUE(std::any_of(plan.items.begin(), plan.items.end(),
                              [&](const auto& item) { return item.rows.sequence == *oldest; }))
          << "pass " << plan.number;
    }
    for (const auto& item : plan.items)
      if (item.rows.owner == PassSequence::balanced) owed[item.rows.sequence] -= item.rows.count;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EveryArrival, testing::Range(uint64_t{0}, uint64_t{150}));

}  // namespace
}  // namespace pecia::test
