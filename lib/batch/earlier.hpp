// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What earlier starts of a run left, as far as it decides what the next one runs.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/core/archive.hpp"
#include "lib/io/results.hpp"
#include "lib/job/job.hpp"

namespace pecia::batch {

/// A row of the results.
struct EarlierTurn {
  io::TurnState state = io::TurnState::open;
  uint8_t cut_left = 0;       ///< its prompt, if it was cut, kept its end
  int32_t prompt_tokens = 0;  ///< after a cut
  int32_t output_tokens = 0;  ///< of a turn that is done

  bool done() const { return state == io::TurnState::done; }
  bool failed() const { return state == io::TurnState::failed; }
};

struct Earlier {
  /// Places in the job's list of inputs, in the order of the results' rows: inputs that the results
  /// know first, as they were, whatever they are called now; then new ones, as the job lists them.
  std::vector<int32_t> order;
  std::vector<std::string> input_sha256;  ///< in that order; only where the files were read
  /// The first rows of the results. Empty where nothing was run yet, or the results are not this
  /// run's, which is found out later.
  std::vector<EarlierTurn> turns;

  /// order and turns.
  template <typename A>
  void visit(A& archive) {
    archive(order), archive(turns);
  }
};

/// Reads the job's inputs, for their hashes, and the results in its output folder unless `fresh`.
/// With `retry_failed`, failed turns count as open. Results that cannot be read count as none: who
/// opens them for good says what is wrong with them.
Earlier read_earlier(const job::Job& job, bool fresh, bool retry_failed);

/// Puts job.input into that order.
void reorder_inputs(job::Job& job, const std::vector<int32_t>& order);

}  // namespace pecia::batch
