// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <vector>

#include "lib/engine/schedule/loong_dispatch.hpp"

namespace pecia::bench {

struct Dealing {
  double seconds = 0;  ///< of LoongServe's four steps
  size_t prompts = 0, batches = 0;
};

/// Times one decision: which of the waiting prompts begin, on which of this number of instances, and
/// who keeps their keys. Every second instance makes an answer if `half_busy`, else all are idle.
Dealing deal(int instances, const std::vector<int64_t>& prompts, int64_t slots_of_an_instance,
             const schedule::TeamTimes& times, schedule::ReadingGoal goal, bool half_busy);

}  // namespace pecia::bench
