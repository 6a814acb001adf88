// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which tokens levels keep. Source: CSPS, "which tokens" (importance of a token: the attention that
/// it receives).

#include <cstdint>
#include <span>
#include <vector>

namespace pecia::parallel {

/// Returns the tokens in the order in which levels keep them: whatever number of `counts` a level
/// keeps, these are the first ones of the order. The `first` tokens at the beginning and the `last`
/// ones at the end come first, then the most important ones; of equal ones the earlier. What no count divides is in the order of the tokens,
/// so that tokens next to each other mostly stay so. An importance that is NaN or negative counts as
/// 0. Throws InvalidArgument unless all numbers are between 0 and the number of tokens.
///
///     importance 1 5 2 9 0, first 0, last 1, counts 2 and 4     3 4 | 1 2 | 0
std::vector<int64_t> kept_order(std::span<const float> importance, int64_t first, int64_t last,
                                std::vector<int64_t> counts);

}  // namespace pecia::parallel
