// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The arithmetic of quantize_rows.hpp.

#include <cmath>

#include "kernels/cuda/shared/stored.hpp"

namespace pecia::kernels::cuda {

PECIA_HD float scale_of_row(float largest) {
  return fmaxf(largest / max_fp8, 0x1p-126f);
}

/// Returns what an element loses: the number that its code stands for, less the element.
PECIA_HD float rounding_error(float value, float scale) {
  return fmaf(widen(rounded_to<Fp8>(value * (1.0f / scale))), scale, -value);
}

}  // namespace pecia::kernels::cuda
