// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>

#include "lib/base/core/error.hpp"
#include "lib/simulation/tune/retrieval.hpp"

namespace pecia::tune {
namespace {

std::vector<int32_t> text_of(int64_t tokens) {
  std::vector<int32_t> text(tokens);
  std::iota(text.begin(), text.end(), 0);
  return text;
}

TEST(Retrieval, AsksForAPassageOfTheFirstThreeQuartersAtSeveralDepths) {
  std::vector<int64_t> begins;
  for (size_t index = 0; index < 6; ++index) {
    const auto asked = with_passage_again(index, text_of(800));
    ASSERT_EQ(asked.size(), 800U);
    for (int i = 0; i < 752; ++i) ASSERT_EQ(asked[i], i);
    for (int i = 753; i < 800; ++i) ASSERT_EQ(asked[i], asked[i - 1] + 1);
    begins.push_back(asked[752]);
  }
  EXPECT_EQ(begins, (std::vector<int64_t>{100, 300, 500, 100, 300, 500}));
}

TEST(Retrieval, NeedsATextWhosePassageIsNotItsEnd) {
  EXPECT_THROW(with_passage_again(0, text_of(least_retrieval_tokens - 1)), InvalidArgument);
  const int64_t last = passage_begin(2, least_retrieval_tokens) + passage_tokens;
  EXPECT_LE(4 * last, 3 * least_retrieval_tokens);
}

TEST(Retrieval, IsTheShareOfJudgedTokensThatAreExpected) {
  const std::vector<int32_t> text = text_of(400);
  std::vector<int32_t> expected = text;
  EXPECT_EQ(retrieved(text, expected), 1);
  expected[0] = -1, expected[399 - judged_tokens] = -1;  // the cue is not judged
  EXPECT_EQ(retrieved(text, expected), 1);
  expected[399] = 7, expected[400 - judged_tokens] = 7;
  EXPECT_DOUBLE_EQ(retrieved(text, expected), 30.0 / 32);
  EXPECT_THROW(retrieved(text, {}), InvalidArgument);
}

}  // namespace
}  // namespace pecia::tune
