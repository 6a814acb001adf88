// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <limits>

#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// Makes the decay and the strength of a recurrence (recurrence.hpp) of what is projected of x:
///
///     step        = min(max(softplus(a[t, h] + bias[h]), least_step), most_step)
///     decay[t, h] = rate[h] · step
///     strength[t, h] = sigmoid(b[t, h])     with b: a gated delta net
///                      step                 without: Mamba-2
///
/// softplus(x) = ln(1 + e^x), and x where it exceeds 20, as in PyTorch. NaN stays NaN. A number's
/// bits do not depend on where it stands. Zero rows do nothing.
struct RecurrenceGatesArgs {
  TensorView a;         ///< [rows, heads] fp32
  TensorView b;         ///< [rows, heads] fp32, or absent
  TensorView rate;      ///< [heads] fp32, 0 or less: −exp(A)
  TensorView bias;      ///< [heads] fp32
  TensorView decay;     ///< [rows, heads] fp32, written
  TensorView strength;  ///< [rows, heads] fp32, written
  float least_step = 0, most_step = std::numeric_limits<float>::infinity();
};

/// Above it, softplus(x) is x.
inline constexpr float softplus_limit = 20.0f;

}  // namespace pecia::kernels
