// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The loop of one replica: its rank 0 makes passes, all ranks run them, results go to disk as
/// turns finish.

#include <functional>
#include <string>

#include "lib/batch/replica_totals.hpp"
#include "lib/batch/source.hpp"
#include "lib/execute/kv_saves.hpp"
#include "lib/execute/worker.hpp"
#include "lib/schedule/scheduler.hpp"

namespace pecia::execute {

/// What the replica's rank 0 makes its passes from.
struct PassMaker {
  schedule::Scheduler& scheduler;
  batch::Source& source;
  io::ResultsFile& results;
  /// Names, for the results, the mode of a turn whose prompt used this ring.
  std::function<std::string(const std::string& ring)> mode;
  int32_t replica = 0;
  /// Called between passes: must the run drain now? `told`: a rank of the replica was told to stop.
  std::function<bool(bool told)> stopping;
  /// Called after every pass, and now and then without one.
  std::function<void(const batch::ReplicaTotals&)> on_pass;
  /// Called before every pass that computes. `seconds` is the time that it is expected to take,
  /// absent before passes were measured.
  std::function<void(const schedule::Plan&, std::optional<double> seconds)> on_plan = {};
  /// Called before every pass.
  std::function<void(const schedule::Plan&, const batch::ReplicaTotals&)> on_begin = {};
  KvSaves* saves = nullptr;  ///< null: nothing is kept, and no save is read
};

/// The time of a run; tests have their own.
struct RunClock {
  std::function<double()> seconds;      ///< seconds since the run began
  std::function<void(double)> sleep_s;  ///< gives the core away for this time
};

/// A clock that starts now.
RunClock steady_run_clock();

/// Runs until nothing is left or `stopping` returns true; turns under way are then written as
/// partial. Collective over `replica`; `pass_maker` is given on its rank 0 and null elsewhere.
/// Every rank calls `told`, which returns whether it was told to stop. The totals are rank 0's.
/// Rank 0's clock decides for all; while ranks wait for the next request, each sleeps on its own
/// clock.
batch::ReplicaTotals run_replica(comm::Communicator& replica, Worker& worker,
                                 report::Recorder& recorder, PassMaker* pass_maker,
                                 const std::function<bool()>& told,
                                 const RunClock& clock = steady_run_clock());

}  // namespace pecia::execute
