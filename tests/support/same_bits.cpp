// SPDX-License-Identifier: Apache-2.0
#include "tests/support/same_bits.hpp"

#include <fmt/format.h>

#include <bit>

namespace pecia::test {

testing::AssertionResult same_bits(const std::vector<float>& found,
                                   const std::vector<float>& wanted) {
  if (found.size() != wanted.size())
    return testing::AssertionFailure() << found.size() << " numbers, not " << wanted.size();
  int64_t differing = 0;
  size_t first = 0;
  for (size_t i = found.size(); i-- > 0;)
    if (std::bit_cast<uint32_t>(found[i]) != std::bit_cast<uint32_t>(wanted[i]))
      ++differing, first = i;
  if (differing == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << fmt::format("{} of {} numbers differ, first [{}]: {:a}, {:a}", differing, found.size(),
                        first, found[first], wanted[first]);
}

void expect_same_bits(const std::map<int64_t, batch::Finished>& found,
                      const std::map<int64_t, batch::Finished>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [row, want] : wanted) {
    SCOPED_TRACE(fmt::format("row {}", row));
    ASSERT_TRUE(found.contains(row));
    ASSERT_EQ(found.at(row).state, io::TurnState::done) << found.at(row).result.error;
    ASSERT_EQ(want.state, io::TurnState::done) << want.result.error;
    const io::TurnResult &a = found.at(row).result, &b = want.result;
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_TRUE(same_bits(a.token_logprobs, b.token_logprobs)) << "token_logprobs";
    EXPECT_EQ(a.top_tokens, b.top_tokens);
    EXPECT_TRUE(same_bits(a.top_logprobs, b.top_logprobs)) << "top_logprobs";
    EXPECT_TRUE(same_bits(a.prompt_logprobs, b.prompt_logprobs)) << "prompt_logprobs";
    EXPECT_TRUE(same_bits(a.vectors, b.vectors)) << "vectors";
    EXPECT_TRUE(same_bits(a.score_logprobs, b.score_logprobs)) << "score_logprobs";
    EXPECT_EQ(a.scores, b.scores);
    EXPECT_TRUE(same_bits(a.prompt_top_logprobs, b.prompt_top_logprobs)) << "prompt_top_logprobs";
  }
}

}  // namespace pecia::test
