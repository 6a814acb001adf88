// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/quantize_steps.hpp"
#include "kernels/cuda/shared/matrix.hpp"
#include "kernels/cuda/shared/vectors.cuh"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

/// Computes quantize_rows.hpp's formula for a row, by all threads of a block. A thread takes `Count`
/// elements at a time. The second pass over the row finds it in the L1 or L2 cache. `square_sums` may
/// be null.
template <int Count, typename T>
__device__ __forceinline__ void quantize_row(const T* x, int64_t columns, Fp8* codes,
                                             float* scale_of_codes, float* square_sums) {
  __shared__ float scratch[3][warp_size];
  const int64_t first = Count * int64_t{threadIdx.x}, step = Count * int64_t{blockDim.x};
  float largest = 0;
  for (int64_t i = first; i < columns; i += step) {
    float values[Count];
    load<Count>(x + i, values);
#pragma unroll
    for (int j = 0; j < Count; ++j) largest = fmaxf(largest, fabsf(values[j]));
  }
  const float scale = scale_of_row(block_max(largest, scratch[0]));
  const float inverse = 1.0f / scale;
  float difference = 0, original = 0;
  for (int64_t i = first; i < columns; i += step) {
    float values[Count];
    load<Count>(x + i, values);
    if (square_sums != nullptr) {
#pragma unroll
      for (int j = 0; j < Count; ++j) {
        const float error = rounding_error(values[j], scale);
        difference += error * error;
        original += values[j] * values[j];
      }
    }
#pragma unroll
    for (int j = 0; j < Count; ++j) values[j] *= inverse;
    store<Count>(values, codes + i);
  }
  if (threadIdx.x == 0) *scale_of_codes = scale;
  if (square_sums == nullptr) return;
  difference = block_sum(difference, scratch[1]);
  original = block_sum(original, scratch[2]);
  if (threadIdx.x != 0) return;
  square_sums[0] = difference;
  square_sums[1] = original;
}

/// A block takes a row; see quantize_row. `square_sums` may be null.
template <int Count, typename T>
__global__ void quantize_rows_kernel(Matrix<const T> x, Matrix<Fp8> codes, float* scales,
                                     float* square_sums) {
  const int64_t row = blockIdx.x;
  quantize_row<Count>(x.row(row), x.columns, codes.row(row), scales + row,
                      square_sums != nullptr ? square_sums + 2 * row : nullptr);
}

}  // namespace pecia::kernels::cuda
