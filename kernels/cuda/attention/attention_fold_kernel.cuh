// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/shared/online_softmax.hpp"
#include "kernels/cuda/shared/vectors.cuh"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

/// A library's result for `num_rows` rows, and where it goes.
struct FoldParams {
  const void* part_out;   ///< [num_rows, num_heads, head_dim] of the stored type
  const float* part_lse;  ///< row r of head h is at h · part_rows + r
  int64_t part_rows;
  float *out, *lse;  ///< at the first row: [num_rows, num_heads, head_dim], lse without head_dim
  int64_t num_rows, num_heads, head_dim;  ///< head_dim: a multiple of 4
};

/// Computes merge.hpp's formula. With `Merges` false it gives the formula's result for an empty
/// `out`. There is a warp for each head of each row.
/// Grid: rows · heads / warps of the block, rounded up.
template <typename T, bool Merges>
__global__ void attention_fold_kernel(FoldParams params) {
  constexpr int count = 4;
  const int lane = threadIdx.x % warp_size;
  const int64_t index = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / warp_size;
  if (index >= params.num_rows * params.num_heads) return;
  const int64_t row = index / params.num_heads, head = index % params.num_heads;
  const float part_lse = params.part_lse[head * params.part_rows + row];
  float* const lse = params.lse + index;
  const MergeWeights weights = Merges ? merge_weights(*lse, part_lse) : MergeWeights{};
  const T* const from = static_cast<const T*>(params.part_out) + index * params.head_dim;
  float* const to = params.out + index * params.head_dim;
  for (int64_t i = count * lane; i < params.head_dim; i += count * warp_size) {
    float part[count];
    load<count>(from + i, part);
    if constexpr (Merges) {
      float before[count];
      load<count>(to + i, before);
#pragma unroll
      for (int j = 0; j < count; ++j) part[j] = merged(weights, before[j], part[j]);
    }
    store<count>(part, to + i);
  }
  __syncwarp();
  if (lane == 0) *lse = Merges ? weights.lse : part_lse;
}

/// Writes lse of `num_rows` rows as rows [num_heads], from `part_lse`, which is laid out as in
/// FoldParams. There is a thread for each head of each row.
static __global__ void attention_lse_kernel(const float* part_lse, int64_t part_rows, float* lse,
                                            int64_t num_rows, int64_t num_heads) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= num_rows * num_heads) return;
  lse[index] = part_lse[index % num_heads * part_rows + index / num_heads];
}

/// Writes what rows get that see no key. There is a warp for each head of each row, as above.
static __global__ void attention_empty_kernel(float* out, float* lse, int64_t num_heads_of_rows,
                                              int64_t head_dim) {
  const int lane = threadIdx.x % warp_size;
  const int64_t index = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / warp_size;
  if (index >= num_heads_of_rows) return;
  for (int64_t i = lane; i < head_dim; i += warp_size) out[index * head_dim + i] = 0.0f;
  if (lane == 0) lse[index] = minus_infinity;
}

}  // namespace pecia::kernels::cuda
