// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What was decided for a pass, for traces and results.

#include <cstdint>
#include <utility>
#include <vector>

#include "lib/ranks/parallel/ring_rule.hpp"

namespace pecia::schedule {

/// What rule B chose to travel for a chunk of a prompt, and why.
struct ChunkRing {
  int64_t sequence = 0;
  parallel::RingDecision decision;
};

/// A choice by expected times: the numbers that led to it, and what was chosen.
struct Decision {
  const char* name;
  std::vector<std::pair<const char*, double>> numbers;
  const char* chosen;
};

}  // namespace pecia::schedule
