// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What rank 0 of a replica makes its plans from, and where the results go.

#include <optional>
#include <string>

#include "lib/engine/execute/kv_saves.hpp"
#include "lib/engine/execute/replica_totals.hpp"
#include "lib/engine/execute/run_observer.hpp"
#include "lib/engine/execute/source.hpp"
#include "lib/engine/schedule/scheduler.hpp"
#include "lib/files/results/journal.hpp"

namespace pecia::execute {

struct PlanSource {
  schedule::Scheduler& scheduler;
  execute::Source& source;
  io::ResultsFile& results;
  RunObserver& observer;
  int32_t replica = 0;
  io::JournalWriter* journal = nullptr;  ///< null: turns that end go straight into `results`
  KvSaves* saves = nullptr;              ///< null: nothing is kept, and no save is read
};

/// Writes the results of turns that have ended, and counts them.
void record(PlanSource& from, std::vector<batch::Finished> finished,
            execute::ReplicaTotals& totals);

/// Takes requests, unless the run is `stopping`, and plans the next pass; absent: none can begin
/// now. Turns that end without a pass are recorded.
std::optional<schedule::Plan> next_pass(PlanSource& from, bool stopping, double now,
                                        execute::ReplicaTotals& totals);

}  // namespace pecia::execute
