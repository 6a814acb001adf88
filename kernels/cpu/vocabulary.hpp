#pragma once
/// Passes over a row of logits.

#include <cstdint>

namespace pecia::kernels::cpu {

/// Index of the largest element, the lowest among equals; count > 0, no NaN.
int64_t argmax(const float* values, int64_t count);

/// Σ exp((values[i] − maximum) · factor), exponentials within 2 ulp of fp32 of the shifted
/// arguments, summed in double from pieces of 1024. Arguments above 0 are the caller's mistake; NaN
/// stays NaN.
double sum_exp(const float* values, int64_t count, float maximum, float factor);

}  // namespace pecia::kernels::cpu
