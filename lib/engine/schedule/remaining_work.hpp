// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Work that is still to be done, for estimates of time.

#include <vector>

#include "lib/engine/schedule/scheduler_state.hpp"

namespace pecia::schedule {

struct RemainingWork {
  struct Answer {
    double tokens = 0;   ///< tokens still expected
    double context = 0;  ///< tokens before the answer's next one
  };
  PassWork prompts;
  std::vector<Answer> answers;

  RemainingWork& operator+=(const RemainingWork& more);
};

/// Expected seconds in the order of prefill_first: prompts first, then the answers together, until
/// the longest has ended.
double seconds_of(RemainingWork work, const PassTimes& times);

/// Work of a turn that has not begun, where `read` tokens have to be read after `cached` ones.
RemainingWork remaining_of(const SchedulerState& state, const batch::Turn& turn, int64_t cached,
                           int64_t read);
/// Work of a request's first open turn, with all that has to be read again before it.
RemainingWork remaining_of(const SchedulerState& state, const batch::Request& request);
/// Work of a turn that has begun, after the pass in which it is.
RemainingWork remaining_of(const SchedulerState& state, const ActiveSequence& sequence);
/// Work of all turns under way, with those that are about to begin and passes that go on.
RemainingWork remaining_of_active(const SchedulerState& state);

}  // namespace pecia::schedule
