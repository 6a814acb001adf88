// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "lib/ranks/parallel/level_schedule.hpp"

namespace pecia::parallel {
namespace {

using testing::ElementsAre;
using enum LevelAct;

TEST(LevelSchedule, SendsKeysBesideTheProductOfQueriesNearStepsFirst) {
  const LevelSchedule schedule = level_schedule(2);
  EXPECT_THAT(schedule.with_keys, ElementsAre(LevelEvent{send_keys, 0}, LevelEvent{send_keys, 1}));
  EXPECT_THAT(schedule.with_queries,
              ElementsAre(LevelEvent{send_queries, 0}, LevelEvent{send_queries, 1},
                          LevelEvent{attend_own, 0}, LevelEvent{attend, 0}, LevelEvent{attend, 1},
                          LevelEvent{merge, 0}, LevelEvent{merge, 1}));
}

TEST(LevelSchedule, OfOneLevelIsTheOwnPart) {
  EXPECT_TRUE(level_schedule(0).with_keys.empty());
  EXPECT_THAT(level_schedule(0).with_queries, ElementsAre(LevelEvent{attend_own, 0}));
}

}  // namespace
}  // namespace pecia::parallel
