// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

/// y[t, o] (+)= products[t, o] · x_scales[t] · weight_scales[o] + bias[o]; `bias` may be null.
template <int Count>
__global__ void scale_products_kernel(Matrix<const float> products, const float* x_scales,
                                      const float* weight_scales, const float* bias,
                                      Accumulate accumulate, Matrix<float> y) {
  const int64_t row = blockIdx.x;
  const float x_scale = x_scales[row];
  for (int64_t i = first_column<Count>(); i < y.columns; i += column_step<Count>()) {
    float values[Count], scales[Count], added[Count] = {};
    load<Count>(products.row(row) + i, values);
    load<Count>(weight_scales + i, scales);
    if (bias != nullptr) load<Count>(bias + i, added);
#pragma unroll
    for (int j = 0; j < Count; ++j) values[j] = values[j] * (x_scale * scales[j]) + added[j];
    if (accumulate == Accumulate::yes) {
      load<Count>(y.row(row) + i, added);
#pragma unroll
      for (int j = 0; j < Count; ++j) values[j] += added[j];
    }
    store<Count>(values, y.row(row) + i);
  }
}

}  // namespace pecia::kernels::cuda
