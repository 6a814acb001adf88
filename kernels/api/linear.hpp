// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/api/row_invariant.hpp"
#include "lib/core/tensor_view.hpp"

namespace pecia::kernels {

enum class Accumulate { no, yes };

/// y[t, o] (+)= Σ_i x[t, i] · weight[o, i] + bias[o]
///
/// Products and sums in fp32; weights of a narrower type are widened exactly. Rows of `x`, `weight`
/// and `y` may be strided (a slice of columns is a view). Zero rows do nothing.
///
/// Weights of int8 and int4 are the numbers that lib/core/codes.hpp says, multiplied like those of
/// bf16; the CPU backend alone has them, without RowInvariant::yes.
///
/// Weights may be fp8: weight[o, i] = code · weight_scales[o]. Then x is rounded too, each row to
/// codes with a scale s[t] as QuantizeRowsArgs says, and
///
///     y[t, o] (+)= s[t] · weight_scales[o] · Σ_i code_x[t, i] · code_w[o, i] + bias[o]
///
/// so that a NaN or an infinity in a row of x makes that row of y NaN, and no other. cuBLASLt takes
/// no `in` and `out` of fp8 but multiples of 16, with rows of weights and y that begin at multiples
/// of 16 bytes; and the CUDA backend refuses them with RowInvariant::yes.
struct LinearArgs {
  TensorView x;       ///< [rows, in] fp32, or the type of weights in bf16 or fp16; bf16 with codes
  TensorView weight;  ///< [out, in], fp32, bf16, fp16, fp8 or int8; [out, in / 128 rounded up] int4
  TensorView bias;    ///< [out], fp32, bf16 or fp16, or absent
  TensorView y;       ///< [rows, out] fp32, written; added to with Accumulate::yes
  Accumulate accumulate = Accumulate::no;
  RowInvariant row_invariant = RowInvariant::no;
  /// With RowInvariant::yes alone: into so many equal parts the sum over i is cut, a power of two.
  /// Each is summed by itself, the first one from the bias on; then they are added as the leaves of
  /// a complete binary tree, and y last of all:
  ///
  ///     splits 4     y + ((p0 + p1) + (p2 + p3))
  ///
  /// So whoever has a subtree of the parts, and adds its sum to the others', gets the same bits.
  int splits = 1;
  /// Of weights that are codes: [out] fp32, of int4 [out, row_scales], dense; else absent.
  TensorView weight_scales = {};
};

}  // namespace pecia::kernels
