// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// out[t, i] = x[t, i], widened or rounded to nearest even. NaN stays NaN. The tensors do not
/// overlap. Zero rows do nothing.
struct CastArgs {
  TensorView x;    ///< [rows, width] fp32 or bf16
  TensorView out;  ///< [rows, width], of the other type
};

}  // namespace pecia::kernels
