// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reductions over the lanes of a warp and the warps of a block.

#include "kernels/cuda/shared/instructions.cuh"

namespace pecia::kernels::cuda {

inline constexpr unsigned all_lanes = 0xffffffffu;
inline constexpr int warp_size = 32;

/// Sums over groups of `Width` lanes next to each other. `Width` is a power of two. Every lane gets
/// the result.
template <int Width = warp_size, typename T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int offset = Width / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(all_lanes, value, offset);
  return value;
}

/// Finds the maximum over the same groups. NaN is passed over.
template <int Width = warp_size>
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = Width / 2; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(all_lanes, value, offset));
  return value;
}

/// Sums over all threads of a block of at most 1024 threads, a multiple of 32. `scratch` is shared,
/// has 32 entries, and may be used again after the next __syncthreads.
template <typename T>
__device__ __forceinline__ T block_sum(T value, T* scratch) {
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  value = warp_sum(value);
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  const int num_warps = blockDim.x / warp_size;
  return warp_sum(lane < num_warps ? scratch[lane] : T(0));
}

/// Finds the maximum over the same threads, of values that are not negative. NaN is passed over.
__device__ __forceinline__ float block_max(float value, float* scratch) {
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  value = warp_max(value);
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  const int num_warps = blockDim.x / warp_size;
  return warp_max(lane < num_warps ? scratch[lane] : 0.0f);
}

}  // namespace pecia::kernels::cuda
