// SPDX-License-Identifier: Apache-2.0
#pragma once
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

/// Computes merge.hpp's formula. There is a warp for each head of each part.
/// Grid: parts · heads / warps of the block, rounded up.
template <typename T>
__global__ void merge_kernel(MergeParams<T> params) {
  const int lane = threadIdx.x % warp_size;
  const int64_t index =
      (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / warp_size;  // (part, head)
  if (index >= params.parts * params.heads) return;
  const int64_t part = index / params.heads, head = index % params.heads;
  const int64_t row = params.rows != nullptr ? params.rows[part] : part;
  float* const lse = params.lse + row * params.heads + head;
  const MergeWeights weights = merge_weights(*lse, params.part_lse[index]);
  const T* const from = params.part_out + index * params.head_dim;
  float* const to = params.out + (row * params.heads + head) * params.head_dim;
  for (int64_t i = lane; i < params.head_dim; i += warp_size)
    to[i] = merged(weights, to[i], widen(from[i]));
  __syncwarp();
  if (lane == 0) *lse = weights.lse;
}

}  // namespace pecia::kernels::cuda
