// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/level_schedule.hpp"

namespace pecia::parallel {

LevelSchedule level_schedule(int steps) {
  LevelSchedule schedule;
  const auto each = [steps](std::vector<LevelEvent>& events, LevelAct act) {
    for (int step = 0; step < steps; ++step) events.push_back({act, step});
  };
  each(schedule.with_keys, LevelAct::send_keys);
  each(schedule.with_queries, LevelAct::send_queries);
  schedule.with_queries.push_back({LevelAct::attend_own, 0});
  each(schedule.with_queries, LevelAct::attend);
  each(schedule.with_queries, LevelAct::merge);
  return schedule;
}

}  // namespace pecia::parallel
