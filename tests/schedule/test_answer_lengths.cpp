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

}  // namespace
}  // namespace pecia::test
