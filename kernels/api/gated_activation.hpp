// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/core/tensor_view.hpp"

namespace pecia::kernels {

/// SwiGLU: out[t, i] = gate[t, i] / (1 + exp(−gate[t, i])) · up[t, i]. `out` may be `gate` or `up`
/// if it is fp32.
struct GatedActivationArgs {
  TensorView gate;  ///< [rows, ffn] fp32
  TensorView up;    ///< [rows, ffn] fp32
  TensorView out;   ///< [rows, ffn] fp32 or Backend::operand_type, written, rounded once
};

}  // namespace pecia::kernels
