// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// sums[t, h] = Σ_i x[t, h, i]², accumulated in fp32 or wider. A sum's bits depend on its elements
/// alone. A norm over all heads adds them (RmsNormArgs::squares), also those of heads elsewhere.
struct SquareSumsArgs {
  TensorView x;     ///< [rows, heads, head_dim] fp32, dense
  TensorView sums;  ///< [rows, heads] fp32, written; rows may be strided
};

}  // namespace pecia::kernels
