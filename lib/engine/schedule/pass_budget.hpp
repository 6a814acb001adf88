// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the remaining time allows the next pass. TimeBudget decides it, a Former keeps to it.

#include <cstdint>
#include <limits>

#include "lib/engine/schedule/plan.hpp"

namespace pecia::schedule {

struct PassBudget {
  double left_s = std::numeric_limits<double>::infinity();  ///< until the pass has to be over
  const PassTimes* times = nullptr;  ///< how long passes take; null: no end is set
  bool answers_first = false;        ///< answers come before prompts
  bool decodes = true;               ///< a pass with one token of each answer ends in time

  /// New tokens of a prompt that the pass has time for beside the items that it has already: at most
  /// `count`, after `first` cached ones, in whole `unit`s; 0: too few to be worth a pass. The first
  /// pass of a start may be cut but not to 0, since only that pass can show whether the estimate
  /// holds.
  int64_t rows(const Plan& plan, int64_t first, int64_t count, int64_t unit) const;
};

}  // namespace pecia::schedule
