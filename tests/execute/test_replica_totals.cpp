// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/execute/replica_totals.hpp"

namespace pecia::test {
namespace {

using execute::ElasticTotals;

/// A team of two reads a prompt's end, which gives a first token, beside an answer that gets 2 of the 4
/// tokens that could have been right, and one that only computes rows again.
TEST(TeamTotals, CountTokensThatAnswersGot) {
  schedule::Plan plan;
  plan.teams = {{{0, 1}}};
  plan.items.push_back({{5, 0, 20}, std::vector<int32_t>(20), 20, 0});
  plan.items.push_back({{6, 30, 4, 0}, std::vector<int32_t>(4), 25, 6});
  plan.items.back().drafted = 3;
  plan.items.push_back({{7, 40, 2, 1}, std::vector<int32_t>(2), 30});
  ElasticTotals totals;
  execute::count_team(plan, 0, 1, {}, {1, 2, 0}, totals);
  ASSERT_EQ(totals.by_degree.size(), 2u);
  EXPECT_EQ(totals.by_degree[1].prefill_tokens, 20);
  EXPECT_EQ(totals.by_degree[1].decode_tokens, 2);
}

}  // namespace
}  // namespace pecia::test
