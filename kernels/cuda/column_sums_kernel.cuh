// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/attention/attention_fma_kernel.cuh"
#include "kernels/cuda/shared/vectors.cuh"

namespace pecia::kernels::cuda {

struct ColumnSumsParams {
  const float *q, *lse;
  const int64_t* query_positions;
  KeyRun run;
  const void* k;
  const float* k_scales;
  int64_t rows, num_heads, num_kv_heads, head_dim, sums_stride;
  KernelWindow window;
  float scale;
  float* sums;
};

inline constexpr int column_warps = 4, column_heads = 4;

inline int64_t column_shared_bytes(int64_t head_dim) {
  return static_cast<int64_t>(sizeof(float)) * fma_keys * (head_dim | 1);
}

/// Multiplies a key with the same row's queries of `heads` heads, which lie one after the other.
template <int Count>
__device__ __forceinline__ void multiply_heads(const float* key, const float* queries, int heads,
                                               int dim, float (&dots)[column_heads]) {
  for (int i = 0; i < dim; i += Count)
#pragma unroll
    for (int head = 0; head < column_heads; ++head) {
      if (head >= heads) break;
      float query[Count];
      load<Count>(queries + head * dim + i, query);
#pragma unroll
      for (int j = 0; j < Count; ++j) dots[head] += query[j] * key[i + j];
    }
}

/// A lane has one key, and a warp has every fourth row, of column_heads heads at a time. The warps'
/// sums of a head are added in their order, and then the heads' in theirs. `Count` elements of a
/// query are loaded at once. Grid: (keys / fma_keys, KV heads). Shared memory: column_shared_bytes.
template <typename T, int Count>
__global__ void column_sums_kernel(ColumnSumsParams params) {
  __shared__ float sums_of_warps[column_warps][column_heads][fma_keys];
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const int dim = static_cast<int>(params.head_dim), stride = dim | 1;
  const int64_t kv_head = blockIdx.y, group = params.num_heads / params.num_kv_heads;
  const int64_t first = int64_t{blockIdx.x} * fma_keys;
  const int count = static_cast<int>(min(int64_t{fma_keys}, params.run.num_keys - first));
  float* const keys = reinterpret_cast<float*>(dynamic_shared());  // [fma_keys, stride]
  widen_rows<T>(params.k, params.k_scales,
                params.run.offset + kv_head * params.run.head_stride + first * dim, count, dim, dim,
                stride, keys);
  __syncthreads();

  const int64_t position = params.run.position_of(first + lane);
  float of_group = 0;
  for (int64_t done = 0; done < group; done += column_heads) {
    const int64_t head = kv_head * group + done;
    const int heads = static_cast<int>(min(int64_t{column_heads}, group - done));
    float sums[column_heads] = {};
    if (lane < count)
      for (int64_t row = warp; row < params.rows; row += column_warps) {
        if (!sight_of(params.query_positions[row], params.window).has(position)) continue;
        const int64_t of_row = row * params.num_heads + head;
        float dots[column_heads] = {};
        multiply_heads<Count>(keys + lane * stride, params.q + of_row * dim, heads, dim, dots);
#pragma unroll
        for (int i = 0; i < column_heads; ++i) {
          if (i >= heads) break;
          const float lse = params.lse[of_row + i];
          if (lse != minus_infinity) sums[i] += expf(dots[i] * params.scale - lse);
        }
      }
#pragma unroll
    for (int i = 0; i < column_heads; ++i) sums_of_warps[warp][i][lane] = sums[i];
    __syncthreads();
    for (int i = 0; warp == 0 && i < heads; ++i) {
      float sum = sums_of_warps[0][i][lane];
      for (int other = 1; other < column_warps; ++other) sum += sums_of_warps[other][i][lane];
      if (sum > 0) of_group += sum;  // never NaN
    }
    __syncthreads();
  }
  if (warp == 0 && lane < count)
    params.sums[kv_head * params.sums_stride + first + lane] = of_group;
}

}  // namespace pecia::kernels::cuda
