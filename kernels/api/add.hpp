// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// y[t, i] = (y[t, i] + x[t, i]) · scale, with a rounding after the sum and one after the product.
/// Zero rows do nothing.
struct AddArgs {
  TensorView x;  ///< [rows, width] fp32 or bf16
  TensorView y;  ///< [rows, width] fp32, added to
  float scale = 1;
};

}  // namespace pecia::kernels
