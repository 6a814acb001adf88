// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/api/xielu.hpp"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

/// See XieluArgs.
__device__ __forceinline__ float xielu_of(float x, const XieluCurve& curve) {
  if (x > 0) return curve.positive * x * x + curve.slope * x;
  const float bounded = x > curve.most ? curve.most : x;  // compared so that NaN stays
  return curve.negative * (expm1f(bounded) - x) + curve.slope * x;
}

/// Grid: grid_of_rows. A thread takes `Count` elements at a time.
template <int Count, typename Out>
__global__ void xielu_kernel(Matrix<const float> x, Matrix<Out> out, XieluCurve curve) {
  const int64_t row = blockIdx.x;
  for (int64_t i = first_column<Count>(); i < out.columns; i += column_step<Count>()) {
    float values[Count];
    load<Count>(x.row(row) + i, values);
#pragma unroll
    for (int j = 0; j < Count; ++j) values[j] = xielu_of(values[j], curve);
    store<Count>(values, out.row(row) + i);
  }
}

}  // namespace pecia::kernels::cuda
