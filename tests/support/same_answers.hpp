// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Results held against those of another layout of the ranks, whose fp32 sums have another order.

#include "tests/support/replica.hpp"

namespace pecia::test {

/// The project's bound for log-probabilities where fp32 sums have another order.
inline constexpr double answer_tolerance = 1e-4;

/// Same states and tokens; log-probabilities within answer_tolerance.
void expect_same_answers(const std::map<int64_t, batch::Finished>& found,
                         const std::map<int64_t, batch::Finished>& wanted);

/// Whether a greedy choice hangs on the order of a sum. `logprobs`: how many the results have, at
/// least two.
bool near_tie(const std::map<int64_t, batch::Finished>& results, int logprobs);

}  // namespace pecia::test
