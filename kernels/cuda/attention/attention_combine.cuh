// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/attention/attention_output.cuh"
#include "kernels/cuda/shared/online_softmax.hpp"
#include "kernels/cuda/shared/vectors.cuh"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

/// Adds up Count neighbouring columns of a row's partial results, each times its weight, in their
/// order. Several partials are read at once, since a block does this while no other has work.
/// Weights after the last are 0, and what they weigh is the last again.
template <int Count, typename WeightOf, typename PartialAt>
__device__ __forceinline__ void add_partials(int num_partials, const WeightOf& weight_of,
                                             const PartialAt& partial_at, float (&sums)[Count]) {
  constexpr int at_once = 16;
  for (int first = 0; first < num_partials; first += at_once) {
    float values[at_once][Count];
#pragma unroll
    for (int p = 0; p < at_once; ++p)
      load<Count>(partial_at(first + p < num_partials ? first + p : num_partials - 1), values[p]);
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
    const auto weight_of = [&](int partial) {
      return partial < tile.num_partials ? expf(params.partial_lse[partial_row(partial)] - base)
                                         : 0.0f;
    };
    float sum = 0;
    for (int p = lane; p < tile.num_partials; p += warp_size) sum += weight_of(p);
    sum = warp_sum(sum);

    const int64_t packed = tile.first_packed + index;
    const OutputRow to =
        whole_row(params, tile.first_row + packed / group, kv_head * group + packed % group);
    for (int64_t first = 0; first < params.head_dim; first += Count * warp_size) {
      const int64_t column = first + Count * lane;
      const bool exists = column < params.head_dim;
      const float* const from = params.partial_out + (exists ? column : 0);
      float sums[Count] = {};
      add_partials<Count>(
          tile.num_partials, weight_of,
          [&](int partial) { return from + partial_row(partial) * params.head_dim; }, sums);
#pragma unroll
      for (int i = 0; i < Count; ++i)
        if (exists) to.put(column + i, sum == 0 ? 0.0f : sums[i] / sum);
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
  if (params.head_dim % 4 == 0)
    combine_partials<4>(params, whole, kv_head, tile_rows);
  else
    combine_partials<1>(params, whole, kv_head, tile_rows);
}

}  // namespace pecia::kernels::cuda
