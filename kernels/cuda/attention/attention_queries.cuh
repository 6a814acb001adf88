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
  uint32_t words[Pairs][2];  ///< of rounded elements one for both

  template <typename ElementOf>
  __device__ __forceinline__ QueryPairs(const AttentionParams& params,
                                        const ElementOf& element_of) {
    const auto* const q = static_cast<const uint32_t*>(params.q);
    if (params.q_is_rounded) {
#pragma unroll
      for (int i = 0; i < Pairs; ++i) words[i][0] = q[element_of(i) / 2];
    } else {
#pragma unroll
      for (int i = 0; i < Pairs; ++i) {
        const auto pair = *reinterpret_cast<const Packed<uint32_t, 2>*>(q + element_of(i));
        words[i][0] = pair.values[0], words[i][1] = pair.values[1];
      }
    }
  }

  /// Returns a pair rounded, as tensor cores take it.
  template <typename Product>
  __device__ __forceinline__ uint32_t get(const AttentionParams& params, int i) const {
    const uint32_t(&pair)[2] = words[i];
    return params.q_is_rounded ? pair[0]
                               : pack<Product>(float_of_bits(pair[0]), float_of_bits(pair[1]));
  }
};

/// Returns one element as it is.
template <typename Product>
__device__ __forceinline__ float query_element(const AttentionParams& params, int64_t element) {
  if (params.q_is_rounded) return widen(static_cast<const Product*>(params.q)[element]);
  return static_cast<const float*>(params.q)[element];
}

}  // namespace pecia::kernels::cuda
