// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/attention/attention_combine.cuh"
#include "kernels/cuda/attention/attention_queries.cuh"
#include "kernels/cuda/shared/online_softmax.hpp"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

inline constexpr int fma_warps = 4, fma_rows_per_warp = 4;
inline constexpr int fma_tile_rows = fma_warps * fma_rows_per_warp;
inline constexpr int fma_keys = warp_size;  ///< keys at a time: a lane has the score of one key

/// Counts the bytes of the tile's queries and of keys or values of `fma_keys` keys. The stride is
/// odd, so that lanes that read the same element of different keys meet different banks.
inline int64_t fma_shared_bytes(int64_t head_dim) {
  return static_cast<int64_t>(sizeof(float)) *
         (fma_tile_rows * head_dim + fma_keys * (head_dim | 1));
}

/// Widens keys or values of one head from element `offset` on, [count, dim], to numbers: the first
/// `width` of each.
template <typename T>
__device__ __forceinline__ void widen_rows(const void* vectors, const float* scales, int64_t offset,
                                           int count, int dim, int width, int stride, float* to) {
  for (int i = threadIdx.x; i < count * width; i += blockDim.x) {
    const int row = i / width, column = i % width;
    float value = widen(static_cast<const T*>(vectors)[offset + row * dim + column]);
    if constexpr (std::is_same_v<T, Fp8>) value *= scales[offset / dim + row];
    to[row * stride + column] = value;
  }
}

/// Does the same for `count` keys of a tile from `begin` on, run by run.
template <typename T>
__device__ __forceinline__ void widen_keys(const void* vectors, const float* scales,
                                           const KeyRun* runs, const KeyTile& tile, int kv_head,
                                           int begin, int count, int dim, int width, int stride,
                                           float* to) {
  for (int done = 0; done < count;) {
    const KeyPlace place = place_of(tile, begin + done, runs);
    const KeyRun run = runs[place.run];
    const int part = static_cast<int>(min(int64_t{count} - done, run.num_keys - place.key));
    widen_rows<T>(vectors, scales, run.offset + kv_head * run.head_stride + place.key * dim, part,
                  dim, width, stride, to + done * stride);
    done += part;
  }
}

/// Attention in fp32 throughout, for any value_dim up to 32 · Slots and any stored type. It does
/// what the tensor cores' kernels do not take. Values that are the beginnings of their keys are read
/// with these. The softmax is online, with exponents to the base
/// e. A row's bits follow from its own query and keys, tile by tile: keys that it does not see
/// multiply by 1 and add 0. A block has fma_warps warps.
/// Grid: (query tiles, KV heads). Shared memory: fma_shared_bytes.
template <typename T, int Slots>
__global__ void attention_fma_kernel(AttentionParams params) {
  const QueryTile tile = params.query_tiles[blockIdx.x];
  if (tile.num_packed == 0) return;
  const int kv_head = blockIdx.y, warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const int dim = static_cast<int>(params.head_dim), stride = dim | 1;
  const int width = static_cast<int>(params.value_dim);
  const int64_t group = params.num_heads / params.num_kv_heads;
  float* const queries = reinterpret_cast<float*>(dynamic_shared());  // [tile rows, dim]
  float* const keys = queries + fma_tile_rows * dim;                  // [fma_keys, stride]

  for (int i = threadIdx.x; i < tile.num_packed * dim; i += blockDim.x) {
    const PackedRow row = unpack(tile, kv_head, group, i / dim);
    queries[i] = query_element<ProductOf<T>>(
        params, (row.row * params.num_heads + row.head) * dim + i % dim);
  }

  Sight sights[fma_rows_per_warp];
  float maximum[fma_rows_per_warp], sum[fma_rows_per_warp], out[fma_rows_per_warp][Slots];
#pragma unroll
  for (int r = 0; r < fma_rows_per_warp; ++r) {
    const int index = warp * fma_rows_per_warp + r;
    const int64_t row = unpack(tile, kv_head, group, index < tile.num_packed ? index : 0).row;
    sights[r] = sight_of(params.query_positions[row], params.window);
    maximum[r] = minus_infinity;
    sum[r] = 0;
#pragma unroll
    for (int s = 0; s < Slots; ++s) out[r][s] = 0;
  }

  for (KeyWalk walk = tile.keys; walk.left > 0; walk.advance(params.runs)) {
    const KeyTile key_tile = walk.tile();
    if (tile_visibility(tile.positions, positions_of(key_tile, params.runs), params.window) ==
        TileVisibility::none)
      continue;
    for (int begin = 0; begin < key_tile.num_keys; begin += fma_keys) {
      const int count = min(fma_keys, key_tile.num_keys - begin);
      const KeyPlace place = place_of(key_tile, begin + min(lane, count - 1), params.runs);
      const int64_t position = params.runs[place.run].position_of(place.key);

      __syncthreads();
      widen_keys<T>(params.keys.k, params.keys.k_scales, params.runs, key_tile, kv_head, begin,
                    count, dim, dim, stride, keys);
      __syncthreads();
      float weight[fma_rows_per_warp];
#pragma unroll
      for (int r = 0; r < fma_rows_per_warp; ++r) {
        const int index = warp * fma_rows_per_warp + r;
        float score = minus_infinity;
        if (index < tile.num_packed && lane < count && sights[r].has(position)) {
          float dot = 0;
          for (int i = 0; i < dim; ++i)
            dot = fmaf(queries[index * dim + i], keys[lane * stride + i], dot);
          score = multiply(dot, params.scale);
        }
        const float raised = fmaxf(maximum[r], warp_max(score));
        const float base = exponent_base(raised);
        const float factor = expf(maximum[r] - base);
        weight[r] = expf(score - base);
        sum[r] = fmaf(sum[r], factor, warp_sum(weight[r]));
        maximum[r] = raised;
#pragma unroll
        for (int s = 0; s < Slots; ++s) out[r][s] *= factor;
      }

      if (!params.keys.values_in_keys()) {
        __syncthreads();
        widen_keys<T>(params.keys.v, params.keys.v_scales, params.runs, key_tile, kv_head, begin,
                      count, dim, width, stride, keys);
        __syncthreads();
      }
      for (int key = 0; key < count; ++key)
#pragma unroll
        for (int r = 0; r < fma_rows_per_warp; ++r) {
          const float share = __shfl_sync(all_lanes, weight[r], key);
#pragma unroll
          for (int s = 0; s < Slots; ++s)
            if (const int i = lane + s * warp_size; i < width && share != 0)
              out[r][s] = fmaf(share, keys[key * stride + i], out[r][s]);
        }
    }
  }

#pragma unroll
  for (int r = 0; r < fma_rows_per_warp; ++r) {
    const int index = warp * fma_rows_per_warp + r;
    if (index >= tile.num_packed) continue;
    const OutputRow to = output_row(params, tile, kv_head, index, fma_tile_rows);
    const bool empty = sum[r] == 0;
#pragma unroll
    for (int s = 0; s < Slots; ++s)
      if (const int i = lane + s * warp_size; i < width)
        to.put(i, empty ? 0.0f : out[r][s] / sum[r]);
    if (lane == 0) *to.lse = empty ? minus_infinity : maximum[r] + logf(sum[r]);
  }
  combine_if_last(params, params.query_tiles[blockIdx.x], kv_head, fma_tile_rows);
}

}  // namespace pecia::kernels::cuda
