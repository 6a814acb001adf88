// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The loop of a replica in which several passes are under way at a time. Where instances work in teams
/// that change (`parallel.cp: elastic`), a pass concerns the ranks of its team alone, and rank 0 sends
/// each team its next plan as soon as its instances have answered. In stages (`parallel.pp`) all ranks
/// run every plan, in the same order, and rank 0 sends plans ahead. While rank 0 computes, it does so
/// between two pieces of an op. Source: LoongServe (global manager).

#include "lib/engine/execute/plan_source.hpp"
#include "lib/engine/execute/replica.hpp"
#include "lib/engine/execute/run_clock.hpp"

namespace pecia::execute {

/// Does what run_replica does, and its arguments mean the same. Takes over the replica's
/// while_computing; `poll` is called with it.
execute::ReplicaTotals run_teams(comm::Communicator& ranks, Replica& replica,
                                 report::Recorder& recorder, PlanSource* plans,
                                 const std::function<bool()>& stop_requested,
                                 std::function<void()> poll,
                                 const RunClock& clock = steady_run_clock());

}  // namespace pecia::execute
