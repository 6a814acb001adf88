// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Passes over a row of logits.

#include <cstdint>

namespace pecia::kernels::cpu {

/// Index of the largest element, the lowest among equals; count > 0. With NaN among the values it
/// is any index, or `count`: sum_exp tells.
int64_t argmax(const float* values, int64_t count);

/// Σ exp((values[i] − maximum) · factor) for arguments ≤ 0, each within 2 units in the last place
/// of fp32, summed in double over pieces of 1024. NaN if a value is NaN.
double sum_exp(const float* values, int64_t count, float maximum, float factor);

}  // namespace pecia::kernels::cpu
