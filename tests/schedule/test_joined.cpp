// SPDX-License-Identifier: Apache-2.0
/// Requests that share a beginning: each gets the answer that it gets alone, and the beginning is
/// computed once.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "lib/work/batch/joined_request.hpp"
#include "tests/schedule/fake_replica.hpp"
#include "tests/schedule/random_workload.hpp"

namespace pecia::test {
namespace {

using batch::joined;
using batch::Request;
using schedule::SchedulerLimits;

/// Requests that begin with the same `shared` tokens. Some have several turns: chains, and forks, the
/// first turns of which may be answered.
std::vector<Request> alike(Draw& draw, int64_t& row, int64_t shared) {
  std::vector<int32_t> beginning(shared);
  for (int32_t& token : beginning) token = static_cast<int32_t>(draw(5, 95));
  std::vector<Request> requests(draw(2, 9));
  for (Request& request : requests) {
    request = ask(row++, draw(1, 20), static_cast<int32_t>(draw(0, 12)));
    batch::Turn& turn = request.turns.front();
    turn.tokens.insert(turn.tokens.begin(), beginning.begin(), beginning.end());
    turn.random_key = static_cast<uint64_t>(draw(0, 1 << 30));
    const bool fork = draw.one_in(2);
    if (fork) request.followup = io::Followup::fork;
    if (fork && draw.one_in(2)) turn.max_new_tokens = 0;
    for (int64_t later = draw.of<int64_t>({0, 0, 1, 2}) + 2 * fork; later > 0; --later) {
      Request next = ask(row++, draw(1, 20), static_cast<int32_t>(draw(0, 12)));
      next.turns.front().random_key = static_cast<uint64_t>(draw(0, 1 << 30));
      request.turns.push_back(std::move(next.turns.front()));
    }
  }
  return requests;
}

Request together(const std::vector<Request>& requests, int64_t shared) {
  return requests.size() == 1 ? requests.front() : joined(requests, shared).value();
}

int64_t computed_tokens(const Served& served) {
  int64_t tokens = 0;
  for (const schedule::Plan& plan : served.plans) tokens += new_tokens(plan).prompt;
  return tokens;
}

struct JoinedRequests : testing::TestWithParam<uint64_t> {
  /// Room for the requests, and no wish for what sharing cannot give.
  static SchedulerLimits limits_for(Draw& draw, const std::vector<Request>& requests) {
    SchedulerLimits limits = random_limits(draw, requests);
    limits.prompt_logprobs = 0;
    limits.max_positions = draw.of<int64_t>({90, 100000});
    return limits;
  }
};

TEST_P(JoinedRequests, GetTheAnswersThatTheyGetAlone) {
  Draw draw(GetParam());
  int64_t row = 0;
  const int64_t shared = draw(1, 60);
  const auto some = alike(draw, row, shared), others = alike(draw, row, shared);
  const std::vector<Request> asked = {together(some, shared), together(others, shared),
                                      ask(row, draw(1, 50), 5)};
  auto all = some;
  all.insert(all.end(), others.begin(), others.end());
  all.push_back(asked.back());
  const auto limits = limits_for(draw, asked);
  expect_same(serve(limits, asked).rows, expected(limits, all));
}

TEST_P(JoinedRequests, GoOnAfterAStop) {
  Draw draw(GetParam());
  int64_t row = 0;
  const int64_t shared = draw(1, 60);
  const std::vector<Request> requests = alike(draw, row, shared);
  auto limits = limits_for(draw, {together(requests, shared)});
  limits.kv_tokens *= 2;  // an answer that is read again takes other slots than a new one
  std::map<int64_t, batch::Finished> rows;
  std::vector<Request> open = requests;
  for (int64_t passes = 3; !open.empty(); passes *= 2) {
    // A chain whose first turn is done goes on by itself.
    const auto joins = std::stable_partition(open.begin(), open.end(), [](const Request& request) {
      const batch::Turn& first = request.turns.front();
      return first.recorded && (request.followup == io::Followup::chain || !first.refused.empty());
    });
    std::vector<Request> asked(open.begin(), joins);
    if (joins != open.end()) asked.push_back(together({joins, open.end()}, shared));
    const auto served = serve(limits, asked, passes);
    for (const auto& [of, finished] : served.rows)
      EXPECT_TRUE(rows.emplace(of, finished).second) << "row " << of << " is answered again";
    open = resumed(std::move(open), served);
    std::erase_if(open, [](const Request& request) {
      return std::ranges::all_of(request.turns, &batch::Turn::recorded);
    });
  }
  expect_same(rows, expected(limits, requests));
}

INSTANTIATE_TEST_SUITE_P(Random, JoinedRequests, testing::Range<uint64_t>(0, 60));

/// Requests of `tokens` tokens each, of which the first `shared` are the same.
std::vector<Request> of_lengths(const std::vector<int64_t>& tokens, int64_t shared) {
  std::vector<Request> requests;
  for (const int64_t each : tokens) {
    requests.push_back(ask(100 * std::ssize(requests), each, 5));
    auto& own = requests.back().turns.front().tokens;
    for (int64_t i = 0; i < shared; ++i) own[i] = static_cast<int32_t>(5 + i % 90);
  }
  return requests;
}

/// Makes the request a fork with these further turns.
void fork_into(Request& request, const std::vector<int64_t>& turns) {
  request.followup = io::Followup::fork;
  request.turns.front().max_new_tokens = 0;
  for (const int64_t tokens : turns)
    request.turns.push_back(ask(request.turns.back().row + 1, tokens, 5).turns.front());
}

SchedulerLimits roomy() {
  SchedulerLimits limits;
  limits.kv_tokens = 10000, limits.max_positions = 10000;
  limits.max_sequences = 64, limits.max_batch_tokens = 32;
  limits.detokenizer = fake_detokenizer();
  return limits;
}

TEST(Joined, ForksComputeTheEndOfTheirFirstTurnForEachOther) {
  auto requests = of_lengths({60, 50, 53}, 48);
  fork_into(requests[1], {7, 8, 9});
  fork_into(requests[2], {4});
  const auto alone = serve(roomy(), requests), joined = serve(roomy(), {together(requests, 48)});
  expect_same(joined.rows, alone.rows);
  EXPECT_EQ(computed_tokens(alone), 60 + 50 + 7 + 8 + 9 + 53 + 4);
  EXPECT_EQ(computed_tokens(joined), computed_tokens(alone) - 2 * 48 + 3 * 2 + 1 * 5);
  EXPECT_EQ(joined.sharing.spared_tokens(), 2 * 48 - 3 * 2 - 1 * 5);
  EXPECT_EQ(joined.sharing.requests, 3);
  EXPECT_EQ(joined.sharing.repeated_tokens, 3 * 2 + 1 * 5);
}

/// Where the layout must not matter, all tokens are in chunks as without sharing.
TEST(Joined, ForksAreCutWhereTheyAreCutAlone) {
  auto requests = of_lengths({70, 75}, 64);
  fork_into(requests[0], {40, 3});
  fork_into(requests[1], {9});
  SchedulerLimits limits = roomy();
  limits.layout_invariant = true;
  const auto chunks = [&](const std::vector<Request>& asked) {
    std::set<std::pair<int64_t, int64_t>> found;  // first position, count
    for (const schedule::Plan& plan : serve(limits, asked).plans)
      for (const auto& item : plan.items)
        if (item.rows.owner == parallel::PassSequence::balanced)
          found.emplace(item.rows.first, item.rows.count);
    return found;
  };
  EXPECT_EQ(chunks({together(requests, 64)}), chunks(requests));
  EXPECT_EQ(chunks(requests),
            (std::set<std::pair<int64_t, int64_t>>{
                {0, 32}, {32, 32}, {64, 6}, {70, 32}, {102, 8}, {70, 3}, {64, 11}, {75, 9}}));
}

TEST(Joined, ForksFailWithTheirFirstTurn) {
  auto requests = of_lengths({60, 50}, 48);
  fork_into(requests[1], {7, 8});
  requests[1].turns[0].refused = "a bad turn";
  expect_same(serve(roomy(), {together(requests, 48)}).rows, expected(roomy(), requests));
}

/// A long RoPE rotates all tokens by the longest length that a request may have.
TEST(Joined, AreAsLongAsTheLongestOfThem) {
  auto requests = of_lengths({60, 50}, 48);
  fork_into(requests[1], {7, 30});
  const auto longest = [](const std::vector<Request>& asked) {
    return serve(roomy(), asked).plans.front().items.front().longest;
  };
  EXPECT_EQ(longest({requests[0]}), 60 + 5);
  EXPECT_EQ(longest({requests[1]}), 50 + 30 + 5);
  EXPECT_EQ(longest({together(requests, 48)}), 50 + 30 + 5);
}

TEST(Joined, ComputeTheirBeginningOnce) {
  Draw draw(1);
  int64_t row = 0;
  auto requests = alike(draw, row, 48);
  for (Request& request : requests) request.followup = io::Followup::chain;
  EXPECT_EQ(computed_tokens(serve(roomy(), {together(requests, 48)})),
            computed_tokens(serve(roomy(), requests)) - 48 * (std::ssize(requests) - 1));
}

TEST(Joined, AreKnownByTheirTokens) {
  Draw draw(1);
  int64_t row = 0;
  auto requests = alike(draw, row, 48);
  EXPECT_TRUE(joined(requests, 48));
  requests.back().turns.front().tokens[47] ^= 1;
  EXPECT_FALSE(joined(requests, 48)) << "equal hashes are no proof";
  EXPECT_TRUE(joined(requests, 47));
}

TEST(Joined, BeginWithAnswersUnderWay) {
  Draw draw(1);
  int64_t row = 0;
  auto requests = alike(draw, row, 48);
  ASSERT_GE(requests.size(), 2u);
  requests.back().turns.front().answer.tokens = {7};
  const Request all = joined(requests, 48).value();
  EXPECT_EQ(all.turns[1].row, requests.back().turns.front().row);
  EXPECT_EQ(batch::kept_row(all), requests.back().turns.back().row) << "the last row";
}

/// A beginning that was kept under a row stays known by it only as long as that row is open.
TEST(Joined, KeepTheirBeginningUnderTheLastOpenRow) {
  Draw draw(3);
  int64_t row = 0;
  std::vector<Request> requests = alike(draw, row, 48);
  Request all = together(requests, 48);
  EXPECT_EQ(batch::kept_row(all), row - 1);
  all.turns.back().finished = true;
  EXPECT_EQ(batch::kept_row(all), row - 2);
  SchedulerLimits limits;
  limits.kv_tokens = 10000, limits.max_positions = 10000, limits.max_batch_tokens = 16;
  limits.detokenizer = fake_detokenizer();
  const auto served = serve(limits, {together(requests, 48)}, 2);
  ASSERT_EQ(served.keepable.size(), 1u);
  EXPECT_EQ(served.keepable.front().row, row - 1);
  EXPECT_EQ(std::ssize(served.keepable.front().tokens), 32);
}

}  // namespace
}  // namespace pecia::test
