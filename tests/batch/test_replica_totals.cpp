// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/execute/replica_totals.hpp"

namespace pecia::batch {
namespace {

constexpr int64_t not_sampled = -1;

schedule::PlanItem chunk(int64_t sequence, int64_t tokens, int64_t sampled_index = not_sampled) {
  schedule::PlanItem item;
  item.rows = {sequence, 0, tokens};
  item.sampled_index = sampled_index;
  return item;
}
schedule::PlanItem decode_row(int64_t sequence, int64_t sampled_index) {
  schedule::PlanItem item = chunk(sequence, 1, sampled_index);
  item.rows.owner = 0;
  return item;
}
schedule::Plan plan_of(std::vector<schedule::PlanItem> items) {
  schedule::Plan plan;
  plan.items = std::move(items);
  return plan;
}

TEST(PhaseName, SaysWhatThePassHas) {
  EXPECT_STREQ(execute::phase_name(plan_of({chunk(1, 5)})), "prefill");
  EXPECT_STREQ(execute::phase_name(plan_of({decode_row(1, 3)})), "decode");
  EXPECT_STREQ(execute::phase_name(plan_of({decode_row(1, 3), chunk(2, 1)})), "mixed");
  EXPECT_STREQ(execute::phase_name(plan_of({chunk(2, 1), decode_row(1, 3)})), "mixed");
}

TEST(PassCounter, SharesAMixedPassByNewTokens) {
  execute::ReplicaTotals totals;
  execute::PassCounter counter;
  counter.count(plan_of({decode_row(1, 4), decode_row(2, 9), chunk(3, 5), chunk(4, 1, 0)}),
                {10, 14, 800}, totals);
  EXPECT_EQ(totals.prefill_s, 3);
  EXPECT_EQ(totals.decode_s, 1);
  EXPECT_EQ(totals.prefill_flops, 600);
  EXPECT_EQ(totals.decode_flops, 200);
  EXPECT_EQ(totals.prompt_tokens, 6);
  EXPECT_EQ(totals.output_tokens, 3);
}

TEST(PassCounter, GivesAPurePassToItsPhase) {
  execute::ReplicaTotals totals;
  execute::PassCounter counter;
  counter.count(plan_of({chunk(1, 7)}), {0, 0.1, 10}, totals);
  counter.count(plan_of({decode_row(1, 0)}), {1, 1.25, 20}, totals);
  EXPECT_EQ(totals.prefill_s, 0.1);
  EXPECT_EQ(totals.prefill_flops, 10);
  EXPECT_EQ(totals.decode_s, 0.25);
  EXPECT_EQ(totals.decode_flops, 20);
}

TEST(PassCounter, MeasuresBetweenTokensOfATurnThroughMixedPasses) {
  execute::ReplicaTotals totals;
  execute::PassCounter counter;
  counter.count(plan_of({chunk(1, 7, 0)}), {0, 2, 0}, totals);
  EXPECT_TRUE(totals.tbt_s.empty()) << "the first token has none before it";
  counter.count(plan_of({decode_row(1, 1), chunk(2, 30)}), {2, 5, 0}, totals);
  counter.count(plan_of({decode_row(1, 2), chunk(2, 3, 0)}), {6, 7, 0}, totals);
  EXPECT_EQ(totals.tbt_s, (std::vector<double>{3, 2}));
  schedule::Plan next_turn = plan_of({chunk(1, 4, 0), decode_row(2, 1)});
  next_turn.turns.push_back({1, {}, 0, 12});
  counter.count(next_turn, {8, 9, 0}, totals);
  EXPECT_EQ(totals.tbt_s, (std::vector<double>{3, 2, 2})) << "of sequence 2 alone";
  EXPECT_EQ(totals.output_tokens, 6);
}

io::ResultTurn turn_with_slots(int64_t slots) {
  io::ResultTurn turn;
  turn.slots = slots;
  return turn;
}

TEST(CountDone, CountsVectorsAndScores) {
  execute::ReplicaTotals totals;
  io::ResultTurn turn;
  turn.vectors = 3;
  execute::count_done({}, turn, totals);
  turn = {};
  turn.scores = 2, turn.score_tokens = 9;
  execute::count_done({}, turn, totals);
  EXPECT_EQ(totals.done, 2);
  EXPECT_EQ(totals.vectors, 3);
  EXPECT_EQ(totals.scores, 2);
  EXPECT_EQ(totals.score_tokens, 9);
}

TEST(CountDone, SeesWhatWasCut) {
  execute::ReplicaTotals totals;
  io::TurnResult result;
  result.cached_tokens = 5;
  result.finish_reason = io::FinishReason::length;
  execute::count_done(result, turn_with_slots(0), totals);
  EXPECT_EQ(totals.cut_by_length, 0) << "a prompt that is only read";
  EXPECT_TRUE(totals.ttft_s.empty());

  result.tokens = {1, 2, 3};
  result.ttft_s = 2;
  result.truncated_tokens = 70;
  execute::count_done(result, turn_with_slots(3), totals);
  EXPECT_EQ(totals.cut_by_length, 1);
  EXPECT_EQ(totals.cut_by_model_length, 0);
  result.truncated_tokens = 8;
  execute::count_done(result, turn_with_slots(4), totals);
  EXPECT_EQ(totals.cut_by_length, 2);
  EXPECT_EQ(totals.cut_by_model_length, 1);
  result.truncated_tokens = 0;
  result.finish_reason = io::FinishReason::stop;
  execute::count_done(result, turn_with_slots(3), totals);
  EXPECT_EQ(totals.cut_by_length, 2);
  EXPECT_EQ(totals.truncated_turns, 2);
  EXPECT_EQ(totals.truncated_tokens, 78);
  EXPECT_EQ(totals.done, 4);
  EXPECT_EQ(totals.cached_tokens, 20);
  EXPECT_EQ(totals.ttft_s, (std::vector<double>{2, 2, 2}));
}

TEST(PassCounter, TellsFirstTokensOfSharedPassesFromThoseOfTheirOwn) {
  execute::ReplicaTotals totals;
  execute::PassCounter counter;
  counter.count(plan_of({chunk(1, 7, 0)}), {0, 1, 0}, totals);
  EXPECT_EQ(totals.first_tokens, 1);
  EXPECT_EQ(totals.shared_first_tokens, 0);
  counter.count(plan_of({decode_row(1, 1), chunk(2, 7, 0)}), {1, 2, 0}, totals);
  EXPECT_EQ(totals.shared_first_tokens, 0) << "a decode row is no other prompt";
  counter.count(plan_of({chunk(3, 7, 0), chunk(4, 9, 0), chunk(5, 20)}), {2, 3, 0}, totals);
  EXPECT_EQ(totals.first_tokens, 4);
  EXPECT_EQ(totals.shared_first_tokens, 2);
  counter.count(plan_of({chunk(5, 20), chunk(6, 4, 3)}), {3, 4, 0}, totals);
  EXPECT_EQ(totals.first_tokens, 4) << "a continued answer has had its first token";
}

}  // namespace
}  // namespace pecia::batch
