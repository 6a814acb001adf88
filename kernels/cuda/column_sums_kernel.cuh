// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/attention/attention_fma_kernel.cuh"

namespace pecia::kernels::cuda {

struct ColumnSumsParams {
  const float *q, *lse;
  const int64_t* query_positions;
  KeyRun run;
  const void* k;
  const float* k_scales;
  int64_t rows, num_heads, num_kv_heads, head_dim, window, sums_stride;
  float scale;
  float* sums;
};

inline constexpr int column_warps = 4;

inline int64_t column_shared_bytes(int64_t head_dim) {
  return static_cast<int64_t>(sizeof(float)) * fma_keys * (head_dim | 1);
}

/// A lane has one key, and a warp has every fourth row. The warps' sums of a head are added in their
/// order, and then the heads' in theirs. Grid: (keys / fma_keys, KV heads). Shared memory:
/// column_shared_bytes.
template <typename T>
__global__ void column_sums_kernel(ColumnSumsParams params) {
  __shared__ float sums_of_warps[column_warps][fma_keys];
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const int dim = static_cast<int>(params.head_dim), stride = dim | 1;
  const int64_t kv_head = blockIdx.y, group = params.num_heads / params.num_kv_heads;
  const int64_t first = int64_t{blockIdx.x} * fma_keys;
  const int count = static_cast<int>(min(int64_t{fma_keys}, params.run.num_keys - first));
  float* const keys = reinterpret_cast<float*>(dynamic_shared());  // [fma_keys, stride]
  widen_rows<T>(params.k, params.k_scales,
                params.run.offset + kv_head * params.run.head_stride + first * dim, count, dim,
                stride, keys);
  __syncthreads();

  float of_group = 0;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    float sum = 0;
    if (lane < count)
      for (int64_t row = warp; row < params.rows; row += column_warps) {
        const float lse = params.lse[row * params.num_heads + head];
        if (lse == minus_infinity ||
            !sees(params.query_positions[row], params.run.position_of(first + lane), params.window))
          continue;
        const float* const q = params.q + (row * params.num_heads + head) * dim;
        float dot = 0;
        for (int i = 0; i < dim; ++i) dot += q[i] * keys[lane * stride + i];
        sum += expf(dot * params.scale - lse);
      }
    sums_of_warps[warp][lane] = sum;
    __syncthreads();
    if (warp == 0) {
      for (int other = 1; other < column_warps; ++other) sum += sums_of_warps[other][lane];
      if (sum > 0) of_group += sum;  // never NaN
    }
    __syncthreads();
  }
  if (warp == 0 && lane < count)
    params.sums[kv_head * params.sums_stride + first + lane] = of_group;
}

}  // namespace pecia::kernels::cuda
