#pragma once
#include "lib/core/tensor_view.hpp"

namespace pecia::kernels {

/// out[t, i] = x[t, i] / sqrt(mean_j x[t, j]² + eps) · weight[i]
///
/// The mean is accumulated in fp32 or wider. `out` may be `x` where it is fp32. Norms of heads are
/// the same op on a view of [rows · heads, head_dim].
struct RmsNormArgs {
  TensorView x;       ///< [rows, width] fp32
  TensorView weight;  ///< [width], fp32, bf16 or fp16
  float eps;
  TensorView out;  ///< [rows, width] fp32 or Backend::operand_type, written, rounded once
};

}  // namespace pecia::kernels
