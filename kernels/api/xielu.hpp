// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// The constants of an xIELU, whose slope grows on both sides of zero. Source: Huang and Schlag,
/// "Deriving Activation Functions Using Integration" (arXiv 2411.13010), §3.3.
struct XieluCurve {
  float positive, negative;  ///< curvatures above and below zero
  float slope;               ///< at zero
  float most;                ///< the most that goes into expm1, a little below zero

  bool operator==(const XieluCurve&) const = default;
};

/// out[t, i] = xielu(x[t, i]). NaN stays NaN. `out` may be `x` if it is fp32. Zero rows do nothing.
///
///     xielu(x) = positive · x² + slope · x                               x > 0
///                negative · (expm1(min(x, most)) − x) + slope · x        else
struct XieluArgs {
  TensorView x;    ///< [rows, columns] fp32
  TensorView out;  ///< [rows, columns] fp32 or Backend::operand_type, written, rounded once
  XieluCurve curve;
};

}  // namespace pecia::kernels
