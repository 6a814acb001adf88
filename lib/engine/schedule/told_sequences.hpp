// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What instances have been told of sequences, where teams change. A rank knows only what plans of
/// its own teams brought, so a plan brings what its team does not know yet.

#include <cstdint>
#include <map>
#include <vector>

#include "lib/engine/schedule/scheduler_state.hpp"

namespace pecia::schedule {

class ToldSequences {
 public:
  explicit ToldSequences(int instances) : unheard_(instances) {}

  /// Tells instances of the plan's team of a sequence, and of its prefix, in the state before the
  /// pass. Call it before the state has the pass's tokens as cached.
  void introduce(const SchedulerState& state, ActiveSequence& sequence, Plan& plan);
  /// Tells those that receive keys of a sequence's copy of it, in the state before they come.
  void introduce_copy(const SchedulerState& state, int64_t copy,
                      const std::vector<int32_t>& places, Receiving& receiving);
  /// Notes that a sequence has ended, for the instances that know it.
  void forget(int64_t sequence);
  /// The sequences of whose end these instances have to hear, children before their prefixes. They
  /// count as heard then.
  std::vector<int64_t> take_ended(const std::vector<int32_t>& instances);

 private:
  struct Told {
    std::vector<bool> ever, now;  ///< by instance: it was told of it; it has its present state
  };
  std::map<int64_t, Told> told_;               ///< by sequence
  std::vector<std::vector<int64_t>> unheard_;  ///< by instance: sequences of whose end it must hear
};

}  // namespace pecia::schedule
