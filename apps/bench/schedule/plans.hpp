// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Cost of telling the ranks of a replica each pass's plan: bytes, which are counted, and the
/// time of a broadcast, by a model of its messages.

#include <cstdint>
#include <vector>

namespace pecia::bench {

/// The largest plans that a replica's planning rank broadcasts.
struct PlanBytes {
  int64_t prefill = 0, decode = 0;
};

/// Plans a batch of `sequences` prompts of 1000 tokens with answers of 64 tokens for a ring of
/// `ranks`, and counts.
PlanBytes plan_bytes(int64_t ranks, int64_t sequences);

/// Seconds of a broadcast of `bytes` by a binomial tree: in each of ⌈log₂ ranks⌉ steps, ranks that
/// have the bytes send them to one rank each.
///
///     8 ranks, 3 steps     0→4     0→2 4→6     0→1 2→3 4→5 6→7
double tree_seconds(int64_t ranks, int64_t bytes, double message_s, double bytes_per_second);

}  // namespace pecia::bench
