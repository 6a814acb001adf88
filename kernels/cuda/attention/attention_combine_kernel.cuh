// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/attention/attention_tiles.hpp"
#include "kernels/cuda/shared/online_softmax.hpp"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

/// Puts the partial results of divided query tiles together, all at once and in their order. Each
/// warp takes one packed row after another. Grid: (partial tiles, KV heads).
static __global__ void attention_combine_kernel(AttentionParams params, const PartialTile* tiles,
                                                int tile_rows) {
  const PartialTile tile = tiles[blockIdx.x];
  const int kv_head = blockIdx.y, lane = threadIdx.x % warp_size;
  const int64_t group = params.num_heads / params.num_kv_heads;
  for (int index = threadIdx.x / warp_size; index < tile.num_packed;
       index += blockDim.x / warp_size) {
    const auto partial_row = [&](int partial) {
      return ((int64_t{tile.first_partial} + partial) * params.num_kv_heads + kv_head) * tile_rows +
             index;
    };
    float maximum = minus_infinity;
    for (int p = lane; p < tile.num_partials; p += warp_size)
      maximum = fmaxf(maximum, params.partial_lse[partial_row(p)]);
    const float base = exponent_base(warp_max(maximum));
    float sum = 0;
    for (int p = lane; p < tile.num_partials; p += warp_size)
      sum += expf(params.partial_lse[partial_row(p)] - base);
    sum = warp_sum(sum);

    const int64_t packed = tile.first_packed + index;
    const int64_t row =
        (tile.first_row + packed / group) * params.num_heads + kv_head * group + packed % group;
    for (int64_t i = lane; i < params.head_dim; i += warp_size) {
      float value = 0;
      for (int p = 0; p < tile.num_partials; ++p)
        value += expf(params.partial_lse[partial_row(p)] - base) *
                 params.partial_out[partial_row(p) * params.head_dim + i];
      params.out[row * params.head_dim + i] = sum == 0 ? 0.0f : value / sum;
    }
    if (lane == 0) params.lse[row] = sum == 0 ? minus_infinity : base + logf(sum);
  }
}

}  // namespace pecia::kernels::cuda
