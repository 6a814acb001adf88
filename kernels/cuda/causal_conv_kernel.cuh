// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/api/causal_conv.hpp"
#include "kernels/cuda/shared/matrix.hpp"
#include "kernels/cuda/shared/stores.cuh"
#include "kernels/cuda/shared/vectors.cuh"

namespace pecia::kernels::cuda {

/// The fewest rows of an item that a block takes: more than a tail has, so that only an item's first
/// block reads its tail.
inline constexpr int64_t least_conv_rows = 32;

template <int Count>
__device__ __forceinline__ void store_channels(const float (&from)[Count], float* to) {
  if constexpr (Count == 4)
    store_128(from, to);
  else
    store<Count>(from, to);
}

/// See CausalConvArgs. A thread has `Count` channels of some neighbouring rows of an item. Those of an
/// item's first block also write its tail, which no other reads.
/// Grid x: items × blocks of channels; grid y cuts the rows of an item.
template <int Count>
__global__ void causal_conv_kernel(Matrix<const float> x, const float* weight, int64_t taps,
                                   const float* bias, const StateRows* items, Matrix<float> tails,
                                   Matrix<float> out) {
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const int64_t block_channels = Count * int64_t{blockDim.x};
  const int64_t blocks = (x.columns + block_channels - 1) / block_channels;
  const StateRows item = items[blockIdx.x / blocks];
  const int64_t first = blockIdx.x % blocks * block_channels + Count * threadIdx.x;
  const int64_t share = max(least_conv_rows, (item.num_rows + gridDim.y - 1) / gridDim.y);
  const int64_t begin = blockIdx.y * share, end = min(begin + share, item.num_rows);
  if (first >= x.columns || begin >= end) return;

  const int64_t kept = taps - 1;
  const auto row = [&](int64_t t) -> const float* {
    return (t >= 0 ? x.row(item.first_row + t) : tails.row((item.state + 1) * kept + t)) + first;
  };
  float weights[most_conv_taps][Count], biases[Count], values[Count];
#pragma unroll
  for (int c = 0; c < Count; ++c) {
    biases[c] = bias != nullptr ? bias[first + c] : 0.0f;
#pragma unroll
    for (int j = 0; j < most_conv_taps; ++j)
      weights[j][c] = j < taps ? weight[(first + c) * taps + j] : 0.0f;
  }
  for (int64_t t = begin; t < end; ++t) {
    float sums[Count];
#pragma unroll
    for (int c = 0; c < Count; ++c) sums[c] = biases[c];
#pragma unroll
    for (int j = 0; j < most_conv_taps; ++j) {
      if (j >= taps) break;
      load<Count>(row(t - kept + j), values);
#pragma unroll
      for (int c = 0; c < Count; ++c) sums[c] = fmaf(weights[j][c], values[c], sums[c]);
    }
#pragma unroll
    for (int c = 0; c < Count; ++c) sums[c] = sums[c] / (1.0f + expf(-sums[c]));
    store_channels(sums, out.row(item.first_row + t) + first);
  }
  if (begin > 0) return;
  for (int64_t j = 0; j < kept; ++j) {
    load<Count>(row(item.num_rows - kept + j), values);
    store_channels(values, tails.row(item.state * kept + j) + first);
  }
}

}  // namespace pecia::kernels::cuda
