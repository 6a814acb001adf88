// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Makes the run's results, or continues those of an earlier start.

#include <filesystem>
#include <optional>
#include <vector>

#include "lib/base/report/starts.hpp"
#include "lib/run/load_weights.hpp"
#include "lib/run/read_inputs.hpp"
#include "lib/settle/measure/measured.hpp"
#include "lib/work/batch/output.hpp"
#include "lib/work/batch/turn_counts.hpp"

namespace pecia::run {

struct RunResults {
  std::unique_ptr<batch::Output> output;  ///< on the root rank
  std::optional<io::ResultsFile> file;    ///< first on the root rank, later on all planning ranks
  std::vector<report::StartRecord>
      earlier_starts;        ///< earlier starts of this run, on the root rank
  batch::TurnCounts found;   ///< turns before this start; on every rank
  bool is_finished = false;  ///< nothing is left, and a report says so
};

/// `board`: this start's own board ("" without one); boards of ended runs beside it are removed.
/// Collective over all ranks; fails on all together.
RunResults open_results(const Setup& setup, const LoadedWeights& weights, const RunInputs& inputs,
                        const measure::Measured& measured, const std::filesystem::path& board);

std::filesystem::path report_path(const job::Job& job);

}  // namespace pecia::run
