// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where teams change: keys that move from an instance to another to make room there, and what a team
/// that grows takes instead. Internal to lib/engine/schedule.

#include <cstdint>
#include <optional>

#include "lib/engine/schedule/scheduler_state.hpp"

namespace pecia::schedule {

struct KeyMove {
  ActiveSequence* sequence = nullptr;
  int32_t from = 0, to = 0;
  int64_t more = 0;    ///< slots that it gets at `to` beyond those that it has at `from`
  double seconds = 0;  ///< in which the keys of its team go round; 0 where nobody knows
};

/// The cheapest move after which `sequence` has `more` slots without a further instance: of a sequence
/// that shares one with it, or of itself.
std::optional<KeyMove> move_for(SchedulerState& state, ActiveSequence& sequence, int64_t more);

/// Seconds that answers are expected to take longer if the sequence has these slots from now on, and so
/// the answers of further instances in its passes: their steps, and what they wait for while others
/// of the instances read prompts. 0 where it has no further instances, or nobody knows.
double growth_s(const SchedulerState& state, const ActiveSequence& sequence, const Slots& grown);

/// The move of this sequence to another instance that takes the least time; absent: it cannot move
/// now, or nothing has room for it. The branches of a fork do not move.
std::optional<KeyMove> cheapest_move(const SchedulerState& state, ActiveSequence& sequence);

}  // namespace pecia::schedule
