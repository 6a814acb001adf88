// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Values of the Scheduler's decisions. Only the scheduler's own sources include this header.

#include <numeric>
#include <vector>

#include "lib/schedule/scheduler.hpp"

namespace pecia::schedule {

/// Answers under way on an instance, where teams change.
struct Scheduler::Answers {
  int64_t count = 0, context = 0;  ///< context: their tokens so far, together
  double tokens = 0;               ///< still expected of the longest
};

/// Which instances know a sequence, where teams change.
struct Scheduler::Knowledge {
  std::vector<bool> ever, now;  ///< by instance: it has been told of it; it has its present state
};

}  // namespace pecia::schedule
