// SPDX-License-Identifier: Apache-2.0
/// Drafts change no answer, whatever they are: some of these are right, some begin right, and some are
/// made up.

#include <gtest/gtest.h>

#include "lib/engine/schedule/active_sequence.hpp"
#include "tests/schedule/fake_replica.hpp"
#include "tests/schedule/random_workload.hpp"

namespace pecia::test {
namespace {

using schedule::ActiveSequence;
using schedule::DraftLimits;

std::vector<int32_t> text_of(const ActiveSequence& sequence) {
  const std::span<const int32_t> text = sequence.text->tokens();
  return {text.begin(), text.end()};
}

/// Drafts what the model would say, and spoils some of it.
DraftLimits drafts_of(int64_t most, uint64_t seed) {
  const auto draft = [seed](const ActiveSequence& sequence, int64_t longest,
                            std::vector<int32_t>& tokens) {
    std::vector<int32_t> history = text_of(sequence);
    Draw draw(mix(seed, history.size()));
    tokens.clear();
    for (int64_t left = draw(0, longest); left > 0; --left) {
      history.push_back(draw.one_in(6) ? static_cast<int32_t>(draw(0, 95))
                                       : next_token(history, sequence.current().random_key));
      tokens.push_back(history.back());
    }
  };
  return {most, false, draft};
}

int64_t accepted_in(const Served& served) {
  int64_t accepted = 0;
  for (const auto& [row, finished] : served.rows) accepted += finished.result.draft_accepted;
  return accepted;
}

TEST(Drafts, ChangeNoAnswer) {
  int64_t accepted = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const auto requests = random_requests(draw);
    auto limits = random_limits(draw, requests);
    limits.drafts = drafts_of(draw.of<int64_t>({1, 2, 7, 30}), seed);
    const Served served = serve(limits, requests);
    expect_same(served.rows, expected(limits, requests));
    accepted += accepted_in(served);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(accepted, 1000);
}

TEST(Drafts, GoOnAfterAStop) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const auto requests = random_requests(draw);
    auto limits = random_limits(draw, requests);
    limits.drafts = drafts_of(5, seed);
    const Served first = serve(limits, requests, draw(1, 20));
    Served second = serve(limits, resumed(requests, first));
    std::map<int64_t, batch::Finished> rows = first.rows;
    rows.merge(second.rows);
    const auto wanted = expected(limits, requests);
    ASSERT_EQ(rows.size(), wanted.size());
    for (const auto& [row, want] : wanted)
      EXPECT_EQ(rows.at(row).result.tokens, want.result.tokens);
    if (testing::Test::HasFailure()) return;
  }
}

schedule::SchedulerLimits room_for(int64_t tokens) {
  schedule::SchedulerLimits limits;
  limits.ring_size = 2;
  limits.kv_tokens = tokens;
  limits.max_batch_tokens = 100;
  limits.max_positions = 1000;
  limits.vocab = 100;
  return limits;
}

TEST(Drafts, TakeFewerPassesWhereTheyAreRight) {
  auto limits = room_for(60);
  const auto request = ask(0, 10, 41);
  const size_t alone = serve(limits, {request}).plans.size();
  EXPECT_EQ(alone, 41u);
  limits.drafts = {3, false,
                   [](const ActiveSequence& sequence, int64_t most, std::vector<int32_t>& tokens) {
                     std::vector<int32_t> history = text_of(sequence);
                     for (int64_t i = 0; i < most; ++i)
                       history.push_back(next_token(history, sequence.current().random_key));
                     tokens.assign(history.end() - most, history.end());
                   }};
  const Served served = serve(limits, {request});
  EXPECT_EQ(served.plans.size(), 11u) << "4 tokens each";
  EXPECT_EQ(served.rows.at(0).result.draft_accepted, 30);
  expect_same(served.rows, expected(limits, {request}));
  for (size_t pass = 2; pass < served.plans.size(); ++pass)
    EXPECT_TRUE(served.plans[pass].shortened.empty());
}

/// Passes of 1 s, and 1 ms or 2 s for each row.
TEST(Drafts, AreTriedWhereTheyPay) {
  for (const double row_s : {1e-3, 2.0}) {
    auto limits = room_for(400);
    const schedule::RateFit fit({1, row_s, 1e-9});
    limits.pass_times = schedule::PassTimes{fit, fit};
    limits.drafts = {8, true, [](const ActiveSequence&, int64_t, std::vector<int32_t>& tokens) {
                       tokens.assign(1, 7);
                     }};
    const Served served = serve(limits, {ask(0, 10, 9)}, 2);
    EXPECT_EQ(served.plans[1].items[0].drafted, row_s < 1 ? 1 : 0);
  }
}

TEST(Drafts, GiveTheSlotsOfOtherTokensBack) {
  auto limits = room_for(60);
  limits.drafts = {3, false, [](const ActiveSequence&, int64_t most, std::vector<int32_t>& tokens) {
                     tokens.assign(most, 96);
                   }};
  const Served served = serve(limits, {ask(0, 10, 9)});
  ASSERT_EQ(served.plans.size(), 9u);
  EXPECT_EQ(served.plans[1].items[0].rows.count, 4);
  ASSERT_EQ(served.plans[2].shortened.size(), 1u);
  EXPECT_EQ(served.plans[2].shortened[0].length, 11);
  EXPECT_EQ(served.plans[2].items[0].rows.first, 11);
  EXPECT_EQ(served.plans[8].items[0].drafted, 0) << "one token is left";
  EXPECT_EQ(served.rows.at(0).result.draft_accepted, 0);
}

}  // namespace
}  // namespace pecia::test
