// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The part of earlier starts' results that decides what the next start runs.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/core/archive.hpp"
#include "lib/files/results/results.hpp"
#include "lib/work/job/job.hpp"

namespace pecia::batch {

/// What earlier starts left of one row of the results.
struct EarlierTurn {
  io::TurnState state = io::TurnState::open;
  uint8_t cut_left = 0;       ///< 1: if its prompt was cut, the end was kept
  int32_t prompt_tokens = 0;  ///< length of its prompt after a cut
  int32_t output_tokens = 0;  ///< length of its answer, if it is done

  bool done() const { return state == io::TurnState::done; }
  bool failed() const { return state == io::TurnState::failed; }
};

struct Earlier {
  /// Indices into the job's list of inputs, in the order of the results' rows. Inputs that the
  /// results know come first, in the old order and whatever their names are now; new ones follow as
  /// the job lists them.
  std::vector<int32_t> order;
  std::vector<std::string> input_sha256;  ///< in that order; filled if the files were read
  /// The first rows of the results. They are empty where nothing was run yet, or where the results
  /// are not this run's, which is found out later.
  std::vector<EarlierTurn> turns;

  /// Archives `order` and `turns`.
  template <typename A>
  void visit(A& archive) {
    archive(order), archive(turns);
  }
};

/// Reads the job's inputs, for their hashes, and the results in its output folder unless `fresh`.
/// With `retry_failed`, failed turns count as open. Unreadable results count as none: opening them
/// for the run reports the reason.
Earlier read_earlier(const job::Job& job, bool fresh, bool retry_failed);

/// Puts job.input into `order`, which Earlier has.
void reorder_inputs(job::Job& job, const std::vector<int32_t>& order);

}  // namespace pecia::batch
