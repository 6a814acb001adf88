// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How many sequences a replica keeps under way: few enough that answers end one after the other
/// all through a run, as whatever is under way when a start ends may have to be read again, and as
/// many as decoding needs to be fast.

#include <cstdint>

namespace pecia::schedule {

/// What the answers of a batch cost on the average.
struct AnswerCost {
  double rows = 0;    ///< new tokens, prompt and answer, attention counted as rows of equal work
  double tokens = 0;  ///< of the answer, the most that it may have
};

/// A decode pass costs the reading of the weights, as long as `weight_rows` rows take, and its
/// rows. With n at once, `answers` of equal length come in ⌈answers / n⌉ waves, and each answer
/// costs rows + tokens · weight_rows · waves / answers. Smallest n for which that is within 2 % of
/// what it is with `most` at once; from 1 to `most`.
///
///     rows 8000, tokens 256, weight_rows 32, 64 answers:   8128 rows with 64 at once, 8256 with 32
int64_t sequences_at_once(const AnswerCost& cost, double weight_rows, int64_t answers,
                          int64_t most);

}  // namespace pecia::schedule
