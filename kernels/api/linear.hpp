#pragma once
#include "kernels/api/row_invariant.hpp"
#include "lib/core/tensor_view.hpp"

namespace pecia::kernels {

enum class Accumulate { no, yes };

/// y[t, o] (+)= Σ_i x[t, i] · weight[o, i] + bias[o]
///
/// Products and sums in fp32; weights of a narrower type are widened exactly. Rows of `x`, `weight`
/// and `y` may be strided (a slice of columns is a view). Zero rows do nothing.
struct LinearArgs {
  TensorView x;       ///< [rows, in] fp32
  TensorView weight;  ///< [out, in], fp32, bf16 or fp16
  TensorView bias;    ///< [out], fp32, bf16 or fp16, or absent
  TensorView y;       ///< [rows, out] fp32, written; added to with Accumulate::yes
  Accumulate accumulate = Accumulate::no;
  RowInvariant row_invariant = RowInvariant::no;
};

}  // namespace pecia::kernels
