// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/attention/attention_output.cuh"
#include "kernels/cuda/shared/online_softmax.hpp"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

/// Puts the partial results of a divided query tile together, all at once and in their order. Each
/// warp of the block takes one packed row after another.
__device__ __forceinline__ void combine_partials(const AttentionParams& params,
                                                 const PartialTile& tile, int kv_head,
                                                 int tile_rows) {
  const int lane = threadIdx.x % warp_size;
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
    const OutputRow to =
        whole_row(params, tile.first_row + packed / group, kv_head * group + packed % group);
    for (int64_t i = lane; i < params.head_dim; i += warp_size) {
      float value = 0;
      for (int p = 0; p < tile.num_partials; ++p)
        value += expf(params.partial_lse[partial_row(p)] - base) *
                 params.partial_out[partial_row(p) * params.head_dim + i];
      to.put(i, sum == 0 ? 0.0f : value / sum);
    }
    if (lane == 0) *to.lse = sum == 0 ? minus_infinity : base + logf(sum);
  }
}

/// Ends a block of attention, after it has written its results. If its query tile is divided, the
/// block that arrives last combines the partial results. These have an order of their own, so the
/// bits do not depend on which block that is. All threads of the block must call it. The tile is
/// read again, so that it takes no registers in the loop over keys.
__device__ __forceinline__ void combine_if_last(const AttentionParams& params, int tile_rows) {
  const QueryTile& tile = params.query_tiles[blockIdx.x];
  if (tile.partial < 0) return;
  const int kv_head = blockIdx.y;
  const PartialTile whole = params.partial_tiles[tile.partial_tile];
  __shared__ bool is_last;
  __threadfence();  // other blocks see this thread's partials before they see it counted
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t* const arrived =
        params.arrived + int64_t{tile.partial_tile} * params.num_kv_heads + kv_head;
    is_last = atomicAdd(arrived, 1) == whole.num_partials - 1;
    if (is_last) *arrived = 0;  // for the next kernel
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  combine_partials(params, whole, kv_head, tile_rows);
}

}  // namespace pecia::kernels::cuda
