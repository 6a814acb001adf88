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
  /// What the results call the mode of a turn whose prompt went round by this ring.
  std::function<std::string(const std::string& ring)> mode;
  int32_t replica = 0;
  /// Asked between passes: drain now? `told`: a rank of the replica was told to stop.
  std::function<bool(bool told)> stopping;
  /// After every pass, and now and then without one.
  std::function<void(const batch::ReplicaTotals&)> on_pass;
  /// Before every pass; `seconds`: how long it is expected to take, absent before any was measured.
  std::function<void(const schedule::Plan&, std::optional<double> seconds)> on_plan = {};
  /// Before every pass.
  std::function<void(const schedule::Plan&, const batch::ReplicaTotals&)> on_begin = {};
  KvSaves* saves = nullptr;  ///< null: nothing is kept, nor what was kept read
};

/// The time of a run; tests have their own.
struct RunClock {
  std::function<double()> seconds;      ///< since the run began
  std::function<void(double)> sleep_s;  ///< gives the core away for so long
};

/// Begins now.
RunClock steady_run_clock();

/// Runs until nothing is left, or `stopping` says so: then turns under way are written as partial.
/// Collective over `replica`; `pass_maker` on its rank 0 alone, null elsewhere. `told` is asked on
/// every rank: was it told to stop? The totals are rank 0's, and so is the time that all of them go
/// by; until the next request arrives they sleep, each on its own clock.
batch::ReplicaTotals run_replica(comm::Communicator& replica, Worker& worker,
                                 report::Recorder& recorder, PassMaker* pass_maker,
                                 const std::function<bool()>& told,
                                 const RunClock& clock = steady_run_clock());

}  // namespace pecia::execute
