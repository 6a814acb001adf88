// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a replica's rank 0 makes its passes from, and what its ranks answer.

#include <functional>
#include <string>

#include "lib/batch/replica_totals.hpp"
#include "lib/batch/source.hpp"
#include "lib/execute/kv_saves.hpp"
#include "lib/io/journal.hpp"
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
  io::JournalWriter* journal = nullptr;  ///< null: turns that end go straight into `results`
  KvSaves* saves = nullptr;              ///< null: nothing is kept, and no save is read
};

/// Writes the results of turns that have ended, and counts them.
void record(PassMaker& pass_maker, std::vector<schedule::Finished> finished,
            batch::ReplicaTotals& totals);

/// Takes requests, unless the run is `stopping`, and plans the next pass; absent: none can begin
/// now. Turns that end without a pass are recorded.
std::optional<schedule::Plan> next_pass(PassMaker& pass_maker, bool stopping, double now,
                                        batch::ReplicaTotals& totals);

/// What a rank answers after a pass.
struct Answer {
  uint8_t told = 0;   ///< 1: this rank was told to stop
  int64_t pass = -1;  ///< number of the plan; −1: none
  double flops = 0;   ///< work of this rank in the pass
  schedule::Outcome outcome;

  template <typename A>
  void visit(A& archive) {
    archive(told), archive(pass), archive(flops);
    outcome.visit(archive);
  }
};

/// The time of a run; tests have their own.
struct RunClock {
  std::function<double()> seconds;      ///< seconds since the run began
  std::function<void(double)> sleep_s;  ///< gives the core away for this time
};

/// A clock that starts now.
RunClock steady_run_clock();

}  // namespace pecia::execute
