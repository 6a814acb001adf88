// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// out[t, i] = x[t, i] / sqrt(mean_j x[t, j]² + eps) · weight[i]
///
/// The mean is accumulated in fp32 or wider. `out` may be `x` if it is fp32. Norms of heads are the
/// same op on a view of [rows · heads, head_dim].
///
/// With squares, a row of x is a part of the row that is normed, and the mean is taken over the
/// whole one: squares has the sums of squares of all its parts (square_sums.hpp), which are added
/// in their order. So the result does not depend on which part is here.
///
/// With marks, marks[t] becomes `mark` if the row's squares have no finite sum and marks[t] is 0.
/// Over the norms of a model, marks[t] says which norm met NaN or infinity first.
struct RmsNormArgs {
  TensorView x;       ///< [rows, width] fp32
  TensorView weight;  ///< [width], fp32, bf16 or fp16
  float eps;
  TensorView out;         ///< [rows, width] fp32 or Backend::operand_type, written, rounded once
  TensorView marks = {};  ///< [rows] int32, dense, read and written, or absent
  int32_t mark = 0;
  TensorView squares = {};  ///< [rows, parts] fp32, or absent
  int64_t whole_width = 0;  ///< elements of the whole row; only with squares
};

}  // namespace pecia::kernels
