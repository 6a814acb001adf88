// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/attention/attention_output.cuh"
#include "kernels/cuda/shared/online_softmax.hpp"
#include "kernels/cuda/shared/vectors.cuh"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

inline constexpr int partials_at_once = 16;

/// Asks for Count neighbouring columns of several partials of a row. Those of a partial are at
/// from + stride from those of the one before. After the last of `count` partials it is the last
/// again.
template <int Count>
__device__ __forceinline__ void load_partials(int count, const float* from, int64_t stride,
                                              float (&values)[partials_at_once][Count]) {
#pragma unroll
  for (int p = 0; p < partials_at_once; ++p) {
    load<Count>(from, values[p]);
    if (p + 1 < count) from += stride;
  }
}

/// Puts the partial results of a divided query tile together, all at once and in their order. Each
/// warp of the block takes one packed row after another. No other block has work meanwhile, so
/// several partials are read at once, and the first of them beside their lse.
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
    const auto lse_of = [&](int partial) {
      return partial < tile.num_partials ? lse[partial * stride] : minus_infinity;
    };
    const PackedRow row = unpack(tile.first_row, tile.first_packed + index, kv_head,
                                 params.num_heads / params.num_kv_heads);
    const OutputRow to = whole_row(params, row.row, row.head);
    for (int64_t first_column = 0; first_column < params.value_dim;
         first_column += Count * warp_size) {
      const int64_t column = first_column + Count * lane;
      const bool exists = column < params.value_dim;
      const float* from =
          params.partial_out + (first_row + index) * params.value_dim + (exists ? column : 0);
      float values[partials_at_once][Count];
      load_partials<Count>(tile.num_partials, from, stride * params.value_dim, values);

      const float own_lse = lse_of(lane);
      float maximum = own_lse;
      for (int p = lane + warp_size; p < tile.num_partials; p += warp_size)
        maximum = fmaxf(maximum, lse_of(p));
      const float base = exponent_base(warp_max(maximum));
      const float own_weight = expf(own_lse - base);
      float sum = own_weight;
      for (int p = lane + warp_size; p < tile.num_partials; p += warp_size)
        sum += expf(lse_of(p) - base);
      sum = warp_sum(sum);

      float sums[Count] = {};
      for (int first = 0;;) {
        // A lane has the weight of partial `lane` of the first 32, and of its turn later.
        const float weight =
            first < warp_size ? own_weight : expf(lse_of(first + lane % partials_at_once) - base);
#pragma unroll
        for (int p = 0; p < partials_at_once; ++p) {
          const float factor = __shfl_sync(all_lanes, weight, (first + p) % warp_size);
#pragma unroll
          for (int i = 0; i < Count; ++i) sums[i] += factor * values[p][i];
        }
        first += partials_at_once;
        if (first >= tile.num_partials) break;
        from += partials_at_once * stride * params.value_dim;
        load_partials<Count>(tile.num_partials - first, from, stride * params.value_dim, values);
      }
#pragma unroll
      for (int i = 0; i < Count; ++i)
        if (exists) to.put(column + i, sum == 0 ? 0.0f : sums[i] / sum);
      if (lane == 0 && first_column == 0) *to.lse = sum == 0 ? minus_infinity : base + logf(sum);
    }
  }
}

/// Asks for what combine_if_last reads first. Its latency would come on top at the end.
__device__ __forceinline__ void prefetch_partial_tile(const AttentionParams& params,
                                                      const QueryTile& tile, int kv_head) {
  if (tile.partial < 0 || threadIdx.x != 0) return;
  prefetch(params.partial_tiles + tile.partial_tile);
  prefetch(params.arrived + int64_t{tile.partial_tile} * params.num_kv_heads + kv_head);
}

/// Ends a block of attention, after it has written its results. If its query tile is divided, the
/// block that arrives last combines the partial results. These have an order of their own, so the
/// bits do not depend on which block that is. All threads of the block must call it. The tile is
/// read again, so that it takes no registers in the loop over keys.
__device__ __forceinline__ void combine_if_last(const AttentionParams& params,
                                                const QueryTile& tile, int kv_head, int tile_rows) {
  if (tile.partial < 0) return;
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
  if (params.value_dim % 4 == 0)
    combine_partials<4>(params, whole, kv_head, tile_rows);
  else
    combine_partials<1>(params, whole, kv_head, tile_rows);
}

}  // namespace pecia::kernels::cuda
