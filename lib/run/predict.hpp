// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a run expects of itself before its first pass, and how far off that was.

#include <optional>
#include <string>

#include "lib/base/report/run_report.hpp"
#include "lib/run/open_results.hpp"

namespace pecia::run {

/// What the prediction rests on.
struct PredictionInputs {
  const Setup& setup;
  const LoadedWeights& weights;
  const RunInputs& inputs;
  const RunResults& results;
  const measure::Measured& measured;
  const std::optional<report::PeakReport>& peak;
  double product_flops;  ///< FLOP/s of all ranks
  double begun_s;        ///< since the run's begin
};

/// The numbers of report.json that are foreseen. On the root rank; absent elsewhere.
///
/// Replays of some passes on a cluster (simulation/replica_cost_model.hpp) give the times of all
/// passes, and the scheduler plays the batch with them; of large batches it plays a part. All answers
/// are taken to have their full length. The cluster is the one that is kept for ranks like these
/// (settle/measure/kept_cluster.hpp), or else one with the rates that the run has measured at its start.
/// Collective over all ranks; a problem fails no run.
std::optional<report::Prediction> predict(const PredictionInputs& from,
                                          const attention::Compute& compute);

/// "foreseen: 42 s, …", or why not.
std::string prediction_line(const report::Prediction& predicted);

/// Keeps how far off the report's prediction was (settle/measure/deviations.hpp), if there is one.
void keep_deviation(const report::RunReport& report, const std::string& what, spdlog::logger& log);

}  // namespace pecia::run
