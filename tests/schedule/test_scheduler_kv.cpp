// SPDX-License-Identifier: Apache-2.0
/// Keys and values that one start keeps and the next one reads: what is planned, and what is kept.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/schedule/fake_replica.hpp"
#include "tests/schedule/random_workload.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using schedule::KeepableKv;
using schedule::Plan;
using schedule::SchedulerLimits;

/// One rank, passes of ten tokens.
SchedulerLimits ten_tokens() {
  SchedulerLimits limits;
  limits.kv_tokens = 1000;
  limits.max_sequences = 8;
  limits.max_batch_tokens = 10;
  limits.max_positions = 1000;
  limits.vocab = 100;
  return limits;
}

/// "r10 r10 7s d" of a request alone: restored and computed chunks, s where a token is sampled.
std::string passes(const std::vector<Plan>& plans) {
  std::string text;
  for (const Plan& plan : plans) {
    if (!text.empty()) text += ' ';
    const auto& item = plan.items.front();
    if (item.rows.owner != parallel::PassSequence::balanced) {
      text += 'd';
      continue;
    }
    text += fmt::format("{}{}{}", plan.restore.empty() ? "" : "r", item.rows.count,
                        item.sampled_index >= 0 ? "s" : "");
  }
  return text;
}

TEST(SavedKv, IsReadInWholeUnitsAndThePromptGoesOnInItsChunks) {
  SchedulerLimits limits = ten_tokens();
  const auto with = [&](int64_t tokens, int64_t saved) {
    const auto served = serve(limits, {ask(0, tokens, 1, saved)});
    expect_same(served.rows, expected(limits, {ask(0, tokens, 1)}));
    return passes(served.plans);
  };
  EXPECT_EQ(with(37, 0), "10 10 10 7s");
  EXPECT_EQ(with(37, 30), "r10 r10 r10 7s");
  EXPECT_EQ(with(37, 29), "r10 r10 r8 2 7s") << "two tokens are a unit of one rank";
  EXPECT_EQ(with(37, 9), "r8 2 10 10 7s");
  EXPECT_EQ(with(30, 30), "r10 r10 r8 2s") << "the last token is fed, for its logits";
  EXPECT_EQ(with(31, 31), "r10 r10 r10 1s");
  Request needs_all = ask(0, 37, 1, 30);
  needs_all.saved.least = 30;
  EXPECT_EQ(passes(serve(limits, {needs_all}).plans), "r10 r10 r10 7s");
  needs_all.saved.tokens = needs_all.saved.least = 29;
  EXPECT_EQ(passes(serve(limits, {needs_all}).plans), "10 10 10 7s") << "28 would be too few";
  limits.layout_invariant = true;
  EXPECT_EQ(with(37, 29), "r10 r10 10 7s") << "where bits would show another cut";
}

/// A state is that after all saved tokens.
TEST(SavedKv, WithAStateIsReadWholeOrNotAtAll) {
  SchedulerLimits limits = ten_tokens();
  limits.has_states = true;
  const auto with = [&](Request request, int64_t saved) {
    request.saved = {"save", saved, batch::Turn::no_row, saved};
    return passes(serve(limits, {request}).plans);
  };
  EXPECT_EQ(with(ask(0, 37, 1), 30), "r10 r10 r10 7s");
  EXPECT_EQ(with(ask(0, 37, 1), 29), "r10 r10 r9 1 7s");
  EXPECT_EQ(with(ask(0, 37, 1), 36), "r10 r10 r10 r6 1s");
  EXPECT_EQ(with(ask(0, 37, 1), 37), "10 10 10 7s") << "the last token gives the answer";
  limits.layout_invariant = true;
  EXPECT_EQ(with(ask(0, 37, 1), 29), "r10 r10 r9 1 7s");
  limits.layout_invariant = false;
  Request fork = ask(0, 20, 0);
  fork.followup = io::Followup::fork;
  fork.turns.push_back(ask(1, 5, 1).turns.front());
  EXPECT_EQ(with(fork, 20), "r10 r10 5s") << "its branches begin with the state after the prefix";
  fork.turns.front().max_new_tokens = 3;
  EXPECT_EQ(with(fork, 20).substr(0, 6), "10 10s") << "its answer begins there, too";
}

TEST(SavedKv, ThatIsDamagedIsComputed) {
  const SchedulerLimits limits = ten_tokens();
  Request request = ask(0, 37, 1, 30);
  request.saved.folder = damaged_save;
  const auto served = serve(limits, {request});
  EXPECT_EQ(passes(served.plans), "r10 10 10 7s") << "tried once";
  expect_same(served.rows, expected(limits, {ask(0, 37, 1)}));
  const auto stopped = serve(limits, {request}, 2);
  ASSERT_EQ(stopped.keepable.size(), 1u);
  EXPECT_EQ(stopped.keepable[0].begin, 0) << "nothing of it goes on";
  EXPECT_EQ(stopped.keepable[0].tokens.size(), 20u);
  EXPECT_EQ(stopped.keepable[0].computed_s, 2 * 0.75);
}

TEST(SavedKv, CanBeKeptOfWhatRunsAlone) {
  const SchedulerLimits limits = ten_tokens();
  // The first request is done, the second one is under way, the third one has not begun.
  SchedulerLimits one = limits;
  one.max_sequences = 1;
  const auto served = serve(one, {ask(0, 10, 1), ask(1, 35, 9), ask(2, 10, 1)}, 1 + 4 + 3);
  ASSERT_EQ(served.keepable.size(), 1u);
  const KeepableKv& kept = served.keepable[0];
  EXPECT_EQ(kept.row, 1);
  EXPECT_EQ(kept.begin, 0);
  EXPECT_EQ(kept.computed_s, (4 + 3) * 0.75);
  std::vector<int32_t> known = ask(1, 35, 9).turns[0].tokens;
  const auto& answer = served.partial.at(0).result.tokens;
  EXPECT_EQ(answer.size(), 4u) << "the last one is not cached yet";
  known.insert(known.end(), answer.begin(), answer.end() - 1);
  EXPECT_EQ(kept.tokens, known);
}

TEST(SavedKv, GoesOnWhereTheEarlierSaveEnds) {
  const SchedulerLimits limits = ten_tokens();
  const auto served = serve(limits, {ask(0, 60, 1, 24)}, 5);
  EXPECT_EQ(passes(served.plans), "r10 r10 r4 6 10");
  ASSERT_EQ(served.keepable.size(), 1u);
  EXPECT_EQ(served.keepable[0].begin, 24);
  EXPECT_EQ(served.keepable[0].tokens.size(), 40u);
  EXPECT_EQ(served.keepable[0].computed_s, 2 * 0.75) << "not of what was read";
  EXPECT_TRUE(serve(limits, {ask(0, 60, 1, 24)}, 2).keepable.empty()) << "no more than is kept";
}

class KvOfEveryWorkload : public testing::TestWithParam<uint64_t> {};

/// Stopped again and again, at any moment, with other limits: the same answers, all plans sound
/// (FakeReplica), and what was kept is read.
TEST_P(KvOfEveryWorkload, GivesTheSameFromWhatWasKept) {
  Draw draw(GetParam());
  const auto requests = random_requests(draw);
  auto limits = random_limits(draw, requests);
  limits.prompt_logprobs = 0;
  const auto wanted = expected(limits, requests);
  auto open = requests;
  std::map<int64_t, batch::Finished> rows;
  for (const int64_t passes : {draw(0, 60), draw(0, 60), int64_t{1} << 40}) {
    const Served served = serve(limits, open, passes);
    for (const auto& [row, finished] : served.rows)
      EXPECT_TRUE(rows.emplace(row, finished).second) << "row " << row << " is recorded again";
    open = resumed(open, served);
    for (const KeepableKv& kept : served.keepable) {
      EXPECT_GT(std::ssize(kept.tokens), kept.begin);
      const auto request = std::find_if(open.begin(), open.end(), [&](const Request& each) {
        return each.turns.front().row == kept.row;
      });
      ASSERT_NE(request, open.end());
      request->saved = {draw.one_in(5) ? damaged_save : "save", std::ssize(kept.tokens)};
    }
    const auto before = limits;
    limits = random_limits(draw, open);
    limits.max_positions = before.max_positions;
    limits.logprobs = before.logprobs;
    limits.prompt_logprobs = 0;
  }
  expect_same(rows, wanted);
}

INSTANTIATE_TEST_SUITE_P(SavedKv, KvOfEveryWorkload, testing::Range(uint64_t{0}, uint64_t{120}));

}  // namespace
}  // namespace pecia::test
