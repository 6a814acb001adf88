// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Keys and values that this start of a run could keep for a later one.

#include <cstdint>
#include <vector>

#include "lib/engine/schedule/scheduler_state.hpp"

namespace pecia::schedule {

/// A sequence whose keys and values could be kept: a chain, or a fork's shared prefix.
struct KeepableKv {
  int64_t row = 0;  ///< kept_row of its request
  int64_t sequence = 0;
  std::vector<int32_t> tokens;  ///< all cached tokens
  int64_t begin = 0;            ///< tokens before this one are kept already
  double computed_s = 0;        ///< seconds spent in this start on the other tokens
  std::vector<int> instances;   ///< that hold them
  Slots reserved = {};          ///< with which they come back where they are parked; else empty
};

/// Sequences of which more is cached or parked than their requests have kept already.
std::vector<KeepableKv> keepable_kv(const SchedulerState& state);

}  // namespace pecia::schedule
