// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/attention/attention_output.cuh"
#include "kernels/cuda/shared/online_softmax.hpp"
#include "kernels/cuda/shared/vectors.cuh"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

/// Adds up Count neighbouring columns of a row's partial results, each times its weight, in their
/// order. The columns of partial p are at from + p · stride. Several partials are read at once,
/// since a block does this while no other has work. Weights after the last are 0, and what they
/// weigh is the last again.
template <int Count, typename WeightOf>
__device__ __forceinline__ void add_partials(int num_partials, const WeightOf& weight_of,
                                             const float* from, int64_t stride,
                                             float (&sums)[Count]) {
  constexpr int at_once = 16;
  for (int first = 0; first < num_partials; first += at_once) {
    float values[at_once][Count];
#pragma unroll
    for (int p = 0; p < at_once; ++p) {
      load<Count>(from, values[p]);
      if (first + p + 1 < num_partials) from += stride;
    }
    const float weight = weight_of(first + static_cast<int>(threadIdx.x) % at_once);
#pragma unroll
    for (int p = 0; p < at_once; ++p) {
      const float factor = __shfl_sync(all_lanes, weight, p);
#pragma unroll
      for (int i = 0; i < Count; ++i) sums[i] += factor * values[p][i];
    }
  }
}

/// Puts the partial results of a divided query tile together, all at once and in their order. Each
/// warp of the block takes one packed row after another.
template <int Count>
__device__ __forceinline__ void combine_partials(const AttentionParams& params,
                                                 const PartialTile& tile, int kv_head,
                                                 int tile_rows) {
  const int lane = threadIdx.x % warp_size;
  const int64_t stride = params.num_kv_heads * tile_rows;  // rows from one partial to the next
  const int64_t first_row = tile.first_partial * stride + int64_t{kv_head} * tile_rows;
  for (int index = threadIdx.x / warp_size; index < tile.num_packed;
       index += blockDim.x / warp_size) {
    const float* const lse = params.partial_lse + first_row + index;
    float maximum = minus_infinity;
    for (int p = lane; p < tile.num_partials; p += warp_size)
      maximum = fmaxf(maximum, lse[p * stride]);
    const float base = exponent_base(warp_max(maximum));
    const auto weight_of = [&](int partial) {
      return partial < tile.num_partials ? expf(lse[partial * stride] - base) : 0.0f;
    };
    float sum = 0;
    for (int p = lane; p < tile.num_partials; p += warp_size) sum += weight_of(p);
    sum = warp_sum(sum);

    const PackedRow row = unpack(tile.first_row, tile.first_packed + index, kv_head,
                                 params.num_heads / params.num_kv_heads);
    const OutputRow to = whole_row(params, row.row, row.head);
    for (int64_t first = 0; first < params.head_dim; first += Count * warp_size) {
      const int64_t column = first + Count * lane;
      const bool exists = column < params.head_dim;
      const float* const from =
          params.partial_out + (first_row + index) * params.head_dim + (exists ? column : 0);
      float sums[Count] = {};
      add_partials<Count>(tile.num_partials, weight_of, from, stride * params.head_dim, sums);
#pragma unroll
      for (int i = 0; i < Count; ++i)
        if (exists) to.put(column + i, sum == 0 ? 0.0f : sums[i] / sum);
    }
    if (lane == 0) *to.lse = sum == 0 ? minus_infinity : base + logf(sum);
  }
}

/// Asks for what combine_if_last reads first. Its latency would come on top at the end.
__device__ __forceinline__ void prefetch_partial_tile(const AttentionParams& params,
                                                      const QueryTile& tile) {
  if (tile.partial < 0 || threadIdx.x != 0) return;
  prefetch(params.partial_tiles + tile.partial_tile);
  prefetch(params.arrived + int64_t{tile.partial_tile} * params.num_kv_heads + blockIdx.y);
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
  if (params.head_dim % 4 == 0)
    combine_partials<4>(params, whole, kv_head, tile_rows);
  else
    combine_partials<1>(params, whole, kv_head, tile_rows);
}

}  // namespace pecia::kernels::cuda
