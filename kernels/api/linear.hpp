// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/api/row_invariant.hpp"
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

enum class Accumulate { no, yes };
enum class SameX { no, yes };

/// y[t, o] (+)= Σ_i x[t, i] · weight[o, i] + bias[o]
///
/// Products and sums are fp32. Weights of a narrower type are widened exactly. Rows of `x`,
/// `weight` and `y` may be strided (a slice of columns is a view). Zero rows do nothing.
///
/// Weights of int8, int4, mxfp4 and nvfp4 are the numbers that lib/base/core/codes.hpp defines. Those
/// of nvfp4 are multiplied by weight_factor. They are multiplied like weights of bf16; numbers may be
/// rounded to bf16 or not. int8 and int4 are refused with RowInvariant::yes. On CPUs a split of mxfp4
/// or nvfp4 must be whole blocks.
///
/// Stored fp8 with scales [out, n], n = 1 or fp8_blocks(in), is multiplied in the same way, on GPUs.
/// Weights of fp8 may have scales [out]. Then x is rounded, too: each row becomes codes with a scale
/// s[t], as QuantizeRowsArgs says, and
///     y[t, o] (+)= s[t] · weight_scales[o] · Σ_i code_x[t, i] · code_w[o, i] + bias[o]
/// GPUs round rows of x to bf16 instead where there are no more than gpu_tile_rows.
///
/// A NaN or an infinity in a row of x leaves no finite number in that row of y, and changes no other
/// row. Here cuBLASLt takes `in` and `out` only if they are multiples of 16, and rows of weights and
/// y only if they begin at multiples of 16 bytes. The CUDA backend refuses all fp8 with
/// RowInvariant::yes.
struct LinearArgs {
  TensorView x;       ///< [rows, in] fp32, or the weights' type if bf16 or fp16, or bf16 with codes
  TensorView weight;  ///< [out, row_elements(in)]: fp32, bf16, fp16, or codes (codes.hpp)
  TensorView bias = {};  ///< [out], fp32, bf16 or fp16, or absent
  /// [rows, out] fp32, written; added to with Accumulate::yes. On backends with rounds_products() it
  /// may be bf16, rounded from fp32, if weights have that operand_type and nothing is added to y,
  /// without RowInvariant::yes.
  TensorView y;
  Accumulate accumulate = Accumulate::no;
  RowInvariant row_invariant = RowInvariant::no;
  /// The number of equal parts into which the sum over i is cut. It is a power of two, and is more
  /// than 1 only with RowInvariant::yes. Each part is summed by itself, and the first part begins
  /// with the bias. Then the parts are added as the leaves of a complete binary tree. y is added
  /// last:
  ///
  ///     splits 4     y + ((p0 + p1) + (p2 + p3))
  ///
  /// So a rank that has a subtree of the parts, and adds its sum to the sums of the other ranks,
  /// gets the same bits.
  int splits = 1;
  /// The scales of weights that are codes: [out] fp32, or [out, row_scales], fp32 for int4, uint8 for
  /// mxfp4 and fp8 for nvfp4; rows may be strided. For int4 they may be twice or four times as many, for
  /// groups of 64 or 32 (int4_shared_by). They are absent for other weights.
  TensorView weight_scales = {};
  /// Yes: the last call of linear on this backend had the same x, and nothing has written to it since.
  /// So a backend that rounds x may use what it rounded then.
  SameX same_x = SameX::no;
  /// Of weights of nvfp4; other weights have 1.
  float weight_factor = 1;
};

}  // namespace pecia::kernels
