// SPDX-License-Identifier: Apache-2.0
/// The record of teams stays small, and says what it left out.

#include <gtest/gtest.h>

#include "lib/engine/execute/team_timeline.hpp"

namespace pecia::batch {
namespace {

schedule::Plan pass_of(std::vector<int32_t> instances, int64_t sequence, bool reads,
                       int32_t holders = 0) {
  schedule::Plan plan;
  plan.teams.push_back({std::move(instances), holders, parallel::AttentionExchange::pass_kv, {}});
  schedule::PlanItem item;
  item.rows = {sequence, 0, 1, reads ? parallel::PassSequence::balanced : 0};
  plan.items.push_back(item);
  return plan;
}

TEST(TeamTimeline, JoinsPassesThatGoOn) {
  execute::TeamTimeline timeline;
  timeline.add(pass_of({0, 1}, 7, true), 0, 1);
  timeline.add(pass_of({2}, 8, false), 0.5, 1.5);
  timeline.add(pass_of({0, 1}, 7, true), 1.01, 2);
  timeline.add(pass_of({2}, 8, false), 1.5, 1.75);
  ASSERT_EQ(timeline.spans().size(), 2u);
  EXPECT_EQ(timeline.spans()[0].end_s, 2);
  EXPECT_EQ(timeline.spans()[0].instances, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(timeline.spans()[0].prompts, 1);
  EXPECT_EQ(timeline.spans()[1].end_s, 1.75);
  EXPECT_EQ(timeline.least_s(), 0);
}

TEST(TeamTimeline, BeginsASpanWhereTeamKindOrRequestChanges) {
  execute::TeamTimeline timeline;
  timeline.add(pass_of({0, 1}, 7, true), 0, 1);
  timeline.add(pass_of({0}, 7, true), 1, 2);
  timeline.add(pass_of({0}, 7, false), 2, 3);
  timeline.add(pass_of({0}, 8, false), 3, 4);
  timeline.add(pass_of({0}, 8, false), 4.5, 5);      // after a pause
  timeline.add(pass_of({0, 1}, 8, false, 1), 5, 6);  // one of them holds keys
  timeline.add(pass_of({0, 1}, 8, false), 6, 7);
  EXPECT_EQ(timeline.spans().size(), 7u);
  EXPECT_EQ(timeline.spans()[5].workers, 1);
}

TEST(TeamTimeline, LeavesOutTheShortestWhenThereAreTooMany) {
  execute::TeamTimeline timeline;
  double now = 0;
  for (int64_t pass = 0; pass < 20000; ++pass) {
    const double seconds = pass % 100 == 0 ? 1.0 : 3e-3;
    timeline.add(pass_of({0}, pass, true), now, now + seconds);
    now += seconds;
  }
  EXPECT_LE(timeline.spans().size(), execute::TeamTimeline::most_spans);
  EXPECT_GT(timeline.least_s(), 3e-3);
  EXPECT_LT(timeline.least_s(), 1);
  int64_t long_ones = 0;
  for (const execute::TeamSpan& span : timeline.spans())
    long_ones += span.end_s - span.begin_s > 0.5;
  EXPECT_EQ(long_ones, 200);
  const auto copy = from_bytes<execute::TeamTimeline>(to_bytes(timeline));
  EXPECT_EQ(copy.spans().size(), timeline.spans().size());
  EXPECT_EQ(copy.least_s(), timeline.least_s());
}

}  // namespace
}  // namespace pecia::batch
