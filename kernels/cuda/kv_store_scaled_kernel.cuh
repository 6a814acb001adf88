// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/shared/matrix.hpp"
#include "kernels/cuda/shared/vectors.cuh"
#include "kernels/cuda/shared/warp.cuh"
#include "lib/base/core/fp8_vector.hpp"

namespace pecia::kernels::cuda {

/// kv_store for fp8 (kernels/api/kv_store.hpp). Each warp takes one head of a row after another,
/// and each lane takes `Count` elements of it at a time. Grid: rows.
template <int Count>
__global__ void kv_store_scaled_kernel(Matrix<const float> x, int64_t head_dim,
                                       const int64_t* slots, Matrix<Fp8> codes,
                                       Matrix<float> scales) {
  const int64_t row = blockIdx.x, slot = slots[row];
  const int lane = threadIdx.x % warp_size, warps = blockDim.x / warp_size;
  const auto heads = static_cast<int>(codes.rows), width = static_cast<int>(head_dim);
  for (int head = threadIdx.x / warp_size; head < heads; head += warps) {
    const float* const from = x.row(row) + head * head_dim;
    Fp8* const to = codes.row(head) + slot * head_dim;
    float greatest = 0;
    bool numbers = true;
    for (int i = Count * lane; i < width; i += Count * warp_size) {
      float values[Count];
      load<Count>(from + i, values);
#pragma unroll
      for (int j = 0; j < Count; ++j) {
        greatest = fmaxf(greatest, fabsf(values[j]));
        numbers = numbers && values[j] == values[j];
      }
    }
    greatest = warp_max(greatest);
    const float not_numbers = warp_sum(numbers ? 0.0f : 1.0f);
    const float scale =
        fp8_scale(not_numbers > 0 ? std::numeric_limits<float>::infinity() : greatest);
    for (int i = Count * lane; i < width; i += Count * warp_size) {
      float values[Count];
      load<Count>(from + i, values);
#pragma unroll
      for (int j = 0; j < Count; ++j) values[j] /= scale;
      store<Count>(values, to + i);
    }
    if (lane == 0) scales.row(head)[slot] = scale;
  }
}

}  // namespace pecia::kernels::cuda
