// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How many sequences a replica keeps under way. Few sequences at once let answers end throughout a
/// run, so that less has to be read again when a start ends early. The number is still large enough
/// for fast decoding.

#include <cstdint>

namespace pecia::resources {

/// Average cost of the answers of a batch.
struct AnswerCost {
  double rows = 0;    ///< new tokens of prompt and answer, with attention as rows of equal work
  double tokens = 0;  ///< tokens of the answer, at most
};

/// Returns the smallest n in [1, `most`] whose cost is within 2 % of the cost with `most` at once.
/// A decode pass costs its rows, plus reading the weights, which takes as long as `weight_rows`
/// rows. With n at once, `answers` of equal length come in ⌈answers / n⌉ waves, and each answer
/// costs rows + tokens · weight_rows · waves / answers.
///
///     rows 8000, tokens 256, weight_rows 32, 64 answers:   8128 rows with 64 at once, 8256 with 32
int64_t sequences_at_once(const AnswerCost& cost, double weight_rows, int64_t answers,
                          int64_t most);

}  // namespace pecia::resources
