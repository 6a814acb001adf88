// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The loop of a replica whose ranks run every pass together: rank 0 makes passes, all ranks run
/// them, results go to disk as turns finish. team_loop.hpp is the loop where teams change.

#include "lib/engine/execute/plan_source.hpp"
#include "lib/engine/execute/replica.hpp"
#include "lib/engine/execute/run_clock.hpp"

namespace pecia::execute {

/// Runs until nothing is left or `stopping` returns true; turns under way are then written as
/// partial. Collective over `ranks`, the replica's; `plans` is given on its rank 0 and null elsewhere.
/// Every rank calls `stop_requested`, which returns whether it was told to stop. The totals are rank
/// 0's. Rank 0's clock decides for all; while ranks wait for the next request, each sleeps on its
/// own clock.
execute::ReplicaTotals run_replica(comm::Communicator& ranks, Replica& replica,
                                   report::Recorder& recorder, PlanSource* plans,
                                   const std::function<bool()>& stop_requested,
                                   const RunClock& clock = steady_run_clock());

}  // namespace pecia::execute
