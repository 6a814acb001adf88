// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Passes over a row of logits.

#include <cstdint>

namespace pecia::kernels::cpu {

/// Returns the index of the largest element, the lowest among equals. `count` must be above 0. With
/// NaN among the values it is any index, or `count`. sum_exp tells whether there is a NaN.
int64_t argmax(const float* values, int64_t count);

/// Returns Σ exp((values[i] − maximum) · factor) for arguments ≤ 0. Each term is within 2 units in
/// the last place of fp32. The sums of pieces of 1024 terms are added in double. The sum is NaN if
/// a value is NaN.
double sum_exp(const float* values, int64_t count, float maximum, float factor);

}  // namespace pecia::kernels::cpu
