// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a run says and writes when it ends, and its exit code.

#include "lib/run/planning.hpp"

namespace pecia::run {

inline constexpr int exit_failed_turns = 3;
inline constexpr int exit_drained = 75;

/// Says that there is nothing to do, and returns the exit code.
int nothing_left(const Setup& setup, const RunResults& results);

/// The facts about a run that has ended.
struct Ended {
  const Setup& setup;
  const RunFacts& facts;
  const RunBegin& begin;
  const report::Startup& startup;
  const execute::ReplicaTotals& totals;
  const batch::TurnCounts& left;
  StopReason reason = StopReason::none;
  std::optional<report::PeakReport> peak = {};
  std::optional<report::EnergyReport> energy = {};  ///< on the root rank
  std::vector<report::StartRecord> earlier_starts = {};
  double seconds = 0;                                ///< duration of the run
  std::optional<report::Prediction> predicted = {};  ///< on the root rank (predict.hpp)
};

/// Writes the report and the traces and says the last lines. Collective over all ranks.
void write_report(const Ended& ended, const execute::Replica& replica, report::Recorder& recorder);

/// Throws SharedError where turns are open without a reason.
int exit_code(const batch::TurnCounts& left, StopReason reason);

}  // namespace pecia::run
