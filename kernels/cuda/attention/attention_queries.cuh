// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Elements of q, which is fp32 or rounded already (AttentionParams::q_is_rounded). `Product` is the
/// type of products.

#include "kernels/cuda/attention/attention_tiles.hpp"
#include "kernels/cuda/shared/vectors.cuh"

namespace pecia::kernels::cuda {

/// Some pairs of neighbouring elements as they are stored: asked for, and not waited for. One after
/// the other they took a block of few rows 4 of its 20 µs (H100). `element_of(i)` is even.
template <int Pairs>
struct QueryPairs {
  Packed<float, 2> wide[Pairs];
  uint32_t rounded[Pairs];

  template <typename ElementOf>
  __device__ __forceinline__ QueryPairs(const AttentionParams& params,
                                        const ElementOf& element_of) {
    if (params.q_is_rounded) {
#pragma unroll
      for (int i = 0; i < Pairs; ++i)
        rounded[i] = static_cast<const uint32_t*>(params.q)[element_of(i) / 2];
    } else {
#pragma unroll
      for (int i = 0; i < Pairs; ++i)
        wide[i] = *reinterpret_cast<const Packed<float, 2>*>(static_cast<const float*>(params.q) +
                                                             element_of(i));
    }
  }

  /// Returns a pair rounded, as tensor cores take it.
  template <typename Product>
  __device__ __forceinline__ uint32_t get(const AttentionParams& params, int i) const {
    return params.q_is_rounded ? rounded[i] : pack<Product>(wide[i].values[0], wide[i].values[1]);
  }
};

/// Returns one element as it is.
template <typename Product>
__device__ __forceinline__ float query_element(const AttentionParams& params, int64_t element) {
  if (params.q_is_rounded) return widen(static_cast<const Product*>(params.q)[element]);
  return static_cast<const float*>(params.q)[element];
}

}  // namespace pecia::kernels::cuda
