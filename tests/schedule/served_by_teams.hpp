// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests answered by instances whose teams change. Passes of several teams are under way at a time and
/// end in any order.

#include <map>
#include <vector>

#include "lib/engine/schedule/scheduler.hpp"
#include "tests/schedule/random_workload.hpp"

namespace pecia::test {

struct ServedByTeams {
  std::map<int64_t, batch::Finished> rows;
  int64_t passes = 0, side_by_side = 0, wide = 0, with_holders = 0, penalized = 0, scale_ups = 0,
          gathered = 0, shrinks = 0, returned = 0, copies = 0;
  schedule::DemandCounts demand;
  schedule::DraftCounts drafts;

  /// Adds what is counted.
  ServedByTeams& operator+=(const ServedByTeams& other) {
    passes += other.passes, side_by_side += other.side_by_side, wide += other.wide;
    with_holders += other.with_holders, penalized += other.penalized;
    scale_ups += other.scale_ups, gathered += other.gathered, shrinks += other.shrinks;
    returned += other.returned, copies += other.copies;
    demand += other.demand, drafts += other.drafts;
    return *this;
  }
};

/// Rows of the busiest instance.
double busiest_rows(const schedule::Plan& plan);

/// Runs the requests to their end. A pass that is under way ends when the draw says so.
ServedByTeams serve_by_teams(const schedule::SchedulerLimits& limits,
                             const std::vector<batch::Request>& requests, Draw& draw);

/// Limits of teams for the requests. Memory is to be set.
schedule::SchedulerLimits random_teams(Draw& draw, const std::vector<batch::Request>& requests);

/// Some instances read for the others.
void set_apart(schedule::SchedulerLimits& limits, Draw& draw);

/// Slots on each instance with which each of the requests can run alone.
int64_t least_slots(const schedule::SchedulerLimits& limits,
                    const std::vector<batch::Request>& requests);

}  // namespace pecia::test
