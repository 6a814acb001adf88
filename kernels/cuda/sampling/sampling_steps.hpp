// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The steps of sampling on one score or one row (kernels/api/sampling.hpp).

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/api/sampling.hpp"
#include "kernels/cuda/shared/host_device.hpp"
#include "kernels/cuda/shared/online_softmax.hpp"

namespace pecia::kernels::cuda {

inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
inline constexpr int32_t no_token_yet = std::numeric_limits<int32_t>::max();

/// SamplingRow without what stays on the host.
struct RowSampling {
  double uniform;
  double temperature, top_p, min_p;  ///< temperature 0: greedy
  double repetition_penalty, presence_penalty, frequency_penalty;
  int64_t top_k;
  bool adjusts;  ///< its scores differ from its logits
};

/// The plain softmax of a row.
struct RowSoftmax {
  double normaliser;  ///< log Σ exp(logit); not finite if the row has no distribution
  int32_t best;
};
PECIA_HD bool exists(const RowSoftmax& row) {
  return row.normaliser - row.normaliser == 0;
}
PECIA_HD float log_prob(float logit, const RowSoftmax& row) {
  return static_cast<float>(logit - row.normaliser);
}

/// The same of some tokens of a row, before the logarithm.
struct SoftmaxPiece {
  double sum;  ///< Σ exp(logit − score)
  float score;
  int32_t token;  ///< the best one's
};

/// Tokens [first, first + count) of all tokens that were sent. They are counted for a row.
struct TokenList {
  int64_t row, first, count;
  bool is_prompt;
};

/// A token's count says how often it is in the output. It has this bit if the token is in the
/// prompt.
inline constexpr uint32_t in_prompt = 0x80000000u;

/// A bias of a token of a row.
struct RowBias {
  int64_t row, column;
  float bias;
};

/// Keeps a score within ± largest_score; −infinity of a masked token stays.
PECIA_HD float bounded(double score) {
  if (score == minus_infinity) return minus_infinity;
  if (score < -largest_score) return static_cast<float>(-largest_score);
  return static_cast<float>(score > largest_score ? largest_score : score);
}

PECIA_HD float penalised(float logit, uint32_t count, const RowSampling& row) {
  if (count == 0) return logit;
  double score = logit;
  score = score > 0 ? score / row.repetition_penalty : score * row.repetition_penalty;
  const uint32_t times = count & ~in_prompt;
  if (times > 0) score -= row.presence_penalty + row.frequency_penalty * times;
  return bounded(score);
}

/// Returns the weight of a score, relative to the weight of the greatest.
PECIA_HD double relative_weight(float score, float greatest, double temperature) {
  return exp((static_cast<double>(score) - greatest) / temperature);
}

/// Counts how many of the first `count` weights are at least `least`. The weights fall. The first
/// of them is at least `least`.
template <typename Weight>
PECIA_HD int64_t count_at_least(const Weight& weight, int64_t count, double least) {
  int64_t low = 1, high = count;  // the answer is in [low, high]
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (weight(middle) >= least)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

}  // namespace pecia::kernels::cuda
