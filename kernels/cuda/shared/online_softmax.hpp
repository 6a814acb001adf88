// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The steps of a softmax whose scores come in pieces, and of merging partial attention outputs.

#include <cmath>
#include <limits>

#include "kernels/cuda/shared/host_device.hpp"

namespace pecia::kernels::cuda {

inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// Returns the number that exponents are taken relative to. A row that has seen no key has −inf as
/// its maximum. Then 0 serves as well: exp(−inf − 0) is 0, while −inf − −inf would be NaN.
PECIA_HD float exponent_base(float maximum) {
  return maximum == minus_infinity ? 0.0f : maximum;
}

/// The weights of two partial outputs, and the log-sum-exp of both together, as natural logarithms.
/// A part without keys (lse = −inf) has the weight 0. It leaves the other part's weight at exactly
/// 1 and its lse as it is. NaN makes all of them NaN.
struct MergeWeights {
  float first, second, lse;
};
PECIA_HD MergeWeights merge_weights(float first_lse, float second_lse) {
  if (second_lse == minus_infinity) return {1.0f, 0.0f, first_lse};
  if (first_lse == minus_infinity) return {0.0f, 1.0f, second_lse};
  const float m = first_lse > second_lse ? first_lse : second_lse;
  const float first = expf(first_lse - m), second = expf(second_lse - m), sum = first + second;
  return {first / sum, second / sum, m + logf(sum)};
}

/// Returns the output of both parts. With a weight of exactly 1 the other part may hold anything.
/// Then no bit of the output changes, not even the sign of a zero.
PECIA_HD float merged(MergeWeights weights, float first, float second) {
  if (weights.second == 0.0f && weights.first == 1.0f) return first;
  if (weights.first == 0.0f && weights.second == 1.0f) return second;
  return first * weights.first + second * weights.second;
}

}  // namespace pecia::kernels::cuda
