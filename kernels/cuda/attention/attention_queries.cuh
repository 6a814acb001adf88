// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Elements of q, which is fp32 or rounded already (AttentionParams::q_is_rounded). `Product` is the
/// type of products.

#include "kernels/cuda/attention/attention_tiles.hpp"
#include "kernels/cuda/shared/instructions.cuh"

namespace pecia::kernels::cuda {

/// Returns two neighbouring elements, rounded, as tensor cores take them. `element` is even.
template <typename Product>
__device__ __forceinline__ uint32_t query_pair(const AttentionParams& params, int64_t element) {
  if (params.q_is_rounded) return static_cast<const uint32_t*>(params.q)[element / 2];
  const float* const pair = static_cast<const float*>(params.q) + element;
  return pack<Product>(pair[0], pair[1]);
}

/// Returns one element as it is.
template <typename Product>
__device__ __forceinline__ float query_element(const AttentionParams& params, int64_t element) {
  if (params.q_is_rounded) return widen(static_cast<const Product*>(params.q)[element]);
  return static_cast<const float*>(params.q)[element];
}

}  // namespace pecia::kernels::cuda
