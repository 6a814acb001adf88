// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/api/gated_activation.hpp"

namespace pecia::kernels {

/// Computes both products of a gated feed-forward and their activation:
///
///     out[t, i] = activation(Σ_j x[t, j] · gate[i, j] + gate_bias[i],
///                            Σ_j x[t, j] · up[i, j]   + up_bias[i])
///
/// This is `linear` by gate and by up, and gated_activation. The products stay in registers or in a
/// cache and are fp32. Backends take it where that pays (Backend::takes_gated_linear): GPUs for few
/// rows, where launches cost more than the work, with sums in an order of their own; CPUs with AMX
/// for many rows, whose products would go to memory and come back, with the bits of the single ops.
/// Zero rows do nothing.
struct GatedLinearArgs {
  TensorView x;         ///< [rows, in], as LinearArgs::x
  TensorView gate, up;  ///< [ffn, row_elements(in)] of one type, as LinearArgs::weight
  TensorView out;       ///< [rows, ffn] Backend::operand_type, written, rounded once
  Activation activation = Activation::silu;
  TensorView gate_scales = {}, up_scales = {};  ///< of one shape, as LinearArgs::weight_scales
  TensorView gate_bias = {}, up_bias = {};      ///< [ffn], fp32, bf16 or fp16, or absent
  float gate_factor = 1, up_factor = 1;         ///< as LinearArgs::weight_factor
};

}  // namespace pecia::kernels
