// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ranks the tokens of a row of logits by their scores, and applies biases and penalties to these.

#include "kernels/api/sampling.hpp"
#include "kernels/cpu/shared/workspace.hpp"

namespace pecia::kernels::cpu {

/// Indices by falling score, with ties by index. They are sorted only as far as asked.
class Ranking {
 public:
  /// `ids` has room for `count` indices. `scores` and `ids` must outlive this object.
  Ranking(const float* scores, int32_t* ids, int64_t count);

  int32_t at(int64_t rank);
  void sort_until(int64_t count);

 private:
  const float* scores_;
  int32_t* ids_;
  int64_t count_;
  int64_t sorted_ = 0;
};

/// A row's scratch memory: a copy of the logits, token ids, and counts of tokens.
struct RowScratch {
  RowScratch(Carver carver, int64_t vocab)
      : scores(carver.take<float>(vocab)),
        ids(carver.take<int32_t>(vocab)),
        counts(carver.take<int32_t>(vocab)) {}
  static int64_t bytes(int64_t vocab) { return 3 * Carver::bytes_of<float>(vocab); }

  float* scores;
  int32_t* ids;
  int32_t* counts;
};

/// Whether a row's scores differ from its logits.
bool adjusts(const SamplingRow& row);

/// Applies the biases and penalties of a row to scratch.scores, which are the scores of `count`
/// tokens from `first_token` on.
void adjust(const SamplingRow& row, int64_t first_token, int64_t count, const RowScratch& scratch);

}  // namespace pecia::kernels::cpu
