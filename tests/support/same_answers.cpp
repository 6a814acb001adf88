// SPDX-License-Identifier: Apache-2.0
#include "tests/support/same_answers.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/compare.hpp"

namespace pecia::test {

void expect_same_answers(const std::map<int64_t, batch::Finished>& found,
                         const std::map<int64_t, batch::Finished>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [row, want] : wanted) {
    SCOPED_TRACE(fmt::format("row {}", row));
    ASSERT_TRUE(found.contains(row));
    const batch::Finished& got = found.at(row);
    ASSERT_EQ(got.state, want.state) << got.result.error;
    const io::TurnResult &a = got.result, &b = want.result;
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_TRUE(all_close(a.token_logprobs, b.token_logprobs, answer_tolerance));
    EXPECT_TRUE(all_close(a.top_logprobs, b.top_logprobs, answer_tolerance));
    EXPECT_TRUE(all_close(a.prompt_logprobs, b.prompt_logprobs, answer_tolerance));
  }
}

bool near_tie(const std::map<int64_t, batch::Finished>& results, int logprobs) {
  for (const auto& [row, finished] : results) {
    const std::vector<float>& top = finished.result.top_logprobs;
    for (size_t i = 0; i < top.size(); i += static_cast<size_t>(logprobs))
      if (top[i] - top[i + 1] <= 2 * answer_tolerance) return true;
  }
  return false;
}

}  // namespace pecia::test
