// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/picked_parts.hpp"
#include "kernels/cuda/shared/online_softmax.hpp"
#include "kernels/cuda/shared/stored.hpp"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

template <typename T>
struct MergeParams {
  const T* part_out;
  const float* part_lse;
  float *out, *lse;
  const int64_t* rows;  ///< null: part p belongs to row p
  int64_t parts, heads, head_dim;
};

/// Merges one head of a part, by a warp.
template <typename T>
__device__ __forceinline__ void merge_head(const T* part_out, float part_lse, float* out,
                                           float* lse, int64_t head_dim) {
  const int lane = threadIdx.x % warp_size;
  const MergeWeights weights = merge_weights(*lse, part_lse);
  for (int64_t i = lane; i < head_dim; i += warp_size)
    out[i] = merged(weights, out[i], widen(part_out[i]));
  __syncwarp();
  if (lane == 0) *lse = weights.lse;
}

/// The warp's number in its row of blocks.
__device__ __forceinline__ int64_t warp_of_grid() {
  return (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / warp_size;
}

/// Computes merge.hpp's formula. There is a warp for each head of each part.
/// Grid: parts · heads / warps of the block, rounded up.
template <typename T>
__global__ void merge_kernel(MergeParams<T> params) {
  const int64_t index = warp_of_grid();  // (part, head)
  if (index >= params.parts * params.heads) return;
  const int64_t part = index / params.heads, head = index % params.heads;
  const int64_t to = (params.rows != nullptr ? params.rows[part] : part) * params.heads + head;
  merge_head(params.part_out + index * params.head_dim, params.part_lse[index],
             params.out + to * params.head_dim, params.lse + to, params.head_dim);
}

/// Computes merge_picked.hpp's formula, for [rows, num_heads, head_dim]. Grid: (as above, parts).
template <typename T>
__global__ void merge_picked_kernel(const PickedPartsThere* all, float* out, float* lse,
                                    int64_t num_heads, int64_t head_dim) {
  const PickedPartsThere of = all[blockIdx.y];
  const int64_t index = warp_of_grid();
  if (index >= of.parts * of.heads) return;
  const int64_t to = of.rows[index / of.heads] * num_heads + of.first_head + index % of.heads;
  merge_head(static_cast<const T*>(of.out) + index * head_dim, of.lse[index], out + to * head_dim,
             lse + to, head_dim);
}

}  // namespace pecia::kernels::cuda
