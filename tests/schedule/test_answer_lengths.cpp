// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/schedule/answer_lengths.hpp"

namespace pecia::test {
namespace {

TEST(AnswerLengths, AreTheMostUntilFourHaveEnded) {
  schedule::AnswerLengths lengths;
  batch::Turn turn;
  turn.max_new_tokens = 200;
  for (int answer = 0; answer < 4; ++answer) {
    EXPECT_EQ(lengths.expected(turn, 3), 197);
    lengths.add(turn, 10, 100);
  }
  EXPECT_DOUBLE_EQ(lengths.expected(turn, 3), 1.25 * 0.1 * 200 - 3);
  EXPECT_EQ(lengths.expected(turn, 30), 1) << "it goes on, though it is longer than expected";
  EXPECT_EQ(lengths.expected(turn, 200), 0);
  for (int answer = 0; answer < 100; ++answer) lengths.add(turn, 100, 100);
  EXPECT_EQ(lengths.expected(turn, 3), 197) << "never more than it may have";
}

batch::Turn turn_of(int64_t prompt, int32_t last, int32_t most = 400) {
  batch::Turn turn;
  turn.tokens.assign(prompt, 7);
  turn.tokens.back() = last;
  turn.max_new_tokens = most;
  return turn;
}

TEST(AnswerLengths, AreLikelyThoseOfLikeTurns) {
  schedule::AnswerLengths lengths;
  EXPECT_EQ(lengths.quantiles(), (std::array<int64_t, 3>{}));
  EXPECT_EQ(lengths.likely(turn_of(100, 1), 0), 25) << "a sixteenth";
  for (int64_t tokens = 1; tokens <= 9; ++tokens) {
    lengths.add(turn_of(100, 1), tokens, 400);
    lengths.add(turn_of(100, 2), 10 * tokens, 400);
    lengths.add(turn_of(1000, 3), 30 * tokens, 400);
  }
  EXPECT_EQ(lengths.likely(turn_of(100, 1), 0), 5);
  EXPECT_EQ(lengths.likely(turn_of(100, 2), 0), 50);
  EXPECT_EQ(lengths.likely(turn_of(110, 9), 0), 10) << "of all with prompts of such a length";
  EXPECT_EQ(lengths.likely(turn_of(9000, 9), 0), 40) << "of all";
  EXPECT_EQ(lengths.likely(turn_of(100, 1, 300), 0), 300 / 16) << "of none with this limit";
  EXPECT_EQ(lengths.likely(turn_of(100, 2), 60), 80) << "of the three that were longer";
  EXPECT_EQ(lengths.likely(turn_of(100, 2), 90), 180) << "none was longer";
  EXPECT_EQ(lengths.likely(turn_of(100, 2), 399), 400);
  EXPECT_EQ(lengths.quantiles(), (std::array<int64_t, 3>{4, 40, 180}));
}

TEST(AnswerLengths, OfEarlierStartsTellWhatIsLikely) {
  schedule::AnswerLengths lengths;
  for (int answer = 0; answer < 8; ++answer) lengths.add_earlier(400, 70);
  EXPECT_EQ(lengths.likely(turn_of(100, 1), 0), 70);
}

}  // namespace
}  // namespace pecia::test
