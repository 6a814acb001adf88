// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/rope_pairs.hpp"
#include "kernels/cuda/shared/matrix.hpp"
#include "kernels/cuda/shared/vectors.cuh"
#include "kernels/cuda/shared/warp.cuh"
#include "lib/base/core/fp8_vector.hpp"

namespace pecia::kernels::cuda {

inline constexpr int most_heads_at_once = 8;  ///< warps of a block

/// What the kernel reads and writes besides the caches (kernels/api/rotate_and_store.hpp).
template <typename W>
struct RotateParams {
  Matrix<const float> q, k, v;
  const W *q_norm, *k_norm;      ///< null: heads are not normed
  Matrix<const float> cos, sin;  ///< of no columns if heads do not turn
  Matrix<float> q_out;           ///< of no rows if q_rounded is written
  Matrix<Bf16> q_rounded;
  const int64_t* slots;
  int32_t head_dim;
  int32_t at_once;  ///< elements whose squares a lane adds next to each other, as in rms_norm
  float eps;
  RopePairs pairs;
};

template <typename T>
struct CacheOfHeads {
  Matrix<T> vectors;     ///< rows are heads, and columns are (slot, element)
  Matrix<float> scales;  ///< of fp8
};

/// rms_norm.hpp's formula on one head, with the sums of rms_norm_kernel.
template <typename W>
__device__ __forceinline__ void norm_head(const RotateParams<W>& params, const W* weight,
                                          float* head) {
  const int lane = threadIdx.x % warp_size;
  float squares = 0;
  for (int i = params.at_once * lane; i < params.head_dim; i += params.at_once * warp_size)
    for (int j = i; j < i + params.at_once; ++j) squares += head[j] * head[j];
  squares = warp_sum(squares);
  const float factor = 1.0f / sqrtf(squares / static_cast<float>(params.head_dim) + params.eps);
  __syncwarp();
  for (int i = lane; i < params.head_dim; i += warp_size)
    head[i] = head[i] * factor * widen(weight[i]);
  __syncwarp();
}

/// Turns one head of a row, as rope_kernel does.
template <typename W>
__device__ __forceinline__ void turn_head(const RotateParams<W>& params, int64_t row, float* head) {
  const auto half = static_cast<int>(params.cos.columns);
  for (int angle = threadIdx.x % warp_size; angle < half; angle += warp_size) {
    const RopePair pair = rope_pair(params.pairs, angle, half);
    turn(head[pair.first], head[pair.second], params.cos.row(row)[angle],
         params.sin.row(row)[angle]);
  }
  __syncwarp();
}

/// Stores one head in the cache, as kv_store does.
template <typename T>
__device__ __forceinline__ void store_head(const float* head, int head_dim, int64_t slot, T* to,
                                           float* scales) {
  const int lane = threadIdx.x % warp_size;
  float scale = 1.0f;
  if constexpr (std::is_same_v<T, Fp8>) {
    float greatest = 0;
    bool numbers = true;
    for (int i = lane; i < head_dim; i += warp_size) {
      greatest = fmaxf(greatest, fabsf(head[i]));
      numbers = numbers && head[i] == head[i];
    }
    greatest = warp_max(greatest);
    const float not_numbers = warp_sum(numbers ? 0.0f : 1.0f);
    scale = fp8_scale(not_numbers > 0 ? std::numeric_limits<float>::infinity() : greatest);
    if (lane == 0) scales[slot] = scale;
  }
  for (int i = lane; i < head_dim; i += warp_size)
    to[slot * head_dim + i] = rounded_to<T>(std::is_same_v<T, Fp8> ? head[i] / scale : head[i]);
}

/// Computes rotate_and_store.hpp's formula. A warp takes one head of a row: a query head, then a
/// key head, then a value head. It holds the head in shared memory, since two lanes that norm an
/// element and its partner are not the lane that turns them.
/// Grid: (rows, heads of all three / warps of the block, rounded up). Shared memory: a head of fp32
/// for each warp.
template <typename T, typename W>
__global__ void rotate_and_store_kernel(RotateParams<W> params, CacheOfHeads<T> keys,
                                        CacheOfHeads<T> values) {
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  if (warp == 0 && lane * 32 < params.cos.columns) {
    prefetch(params.cos.row(blockIdx.x) + 32 * lane);
    prefetch(params.sin.row(blockIdx.x) + 32 * lane);
  }
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const int dim = params.head_dim;
  const auto heads = static_cast<int>(params.q.columns / dim);
  const auto kv_heads = static_cast<int>(params.k.columns / dim);
  int head = static_cast<int>(blockIdx.y * (blockDim.x / warp_size)) + warp;
  if (head >= heads + 2 * kv_heads) return;
  const bool is_query = head < heads, is_value = head >= heads + kv_heads;
  head -= is_value ? heads + kv_heads : is_query ? 0 : heads;

  const int64_t row = blockIdx.x;
  const Matrix<const float>& from = is_query ? params.q : is_value ? params.v : params.k;
  float* const here = reinterpret_cast<float*>(dynamic_shared()) + warp * dim;
  for (int i = lane; i < dim; i += warp_size) here[i] = from.row(row)[head * dim + i];
  __syncwarp();
  if (!is_value && params.q_norm != nullptr)
    norm_head(params, is_query ? params.q_norm : params.k_norm, here);
  if (!is_value) turn_head(params, row, here);

  if (is_query) {
    for (int i = lane; i < dim; i += warp_size)
      if (params.q_rounded.data != nullptr)
        params.q_rounded.row(row)[head * dim + i] = rounded_to<Bf16>(here[i]);
      else
        params.q_out.row(row)[head * dim + i] = here[i];
    return;
  }
  const CacheOfHeads<T>& cache = is_value ? values : keys;
  store_head(here, dim, params.slots[row], cache.vectors.row(head), cache.scales.row(head));
}

}  // namespace pecia::kernels::cuda
