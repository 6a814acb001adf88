// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/attention/attention_combine.cuh"
#include "kernels/cuda/attention/attention_queries.cuh"
#include "kernels/cuda/shared/fp8_pairs.cuh"
#include "kernels/cuda/shared/fragments.hpp"
#include "kernels/cuda/shared/online_softmax.hpp"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

/// The block of attention on tensor cores. It has WarpsM · WarpsN warps, each with 16 packed rows
/// and 1/WarpsN of a tile's keys. One of the two is 1: many rows share all keys, or few rows divide
/// them. Values have ValueDim numbers, in vectors of HeadDim.
template <typename T, int HeadDim, int WarpsM, int WarpsN, int ValueDim = HeadDim>
struct MmaBlock {
  static constexpr bool scaled = std::is_same_v<T, Fp8>;
  static_assert(HeadDim % (scaled ? 32 : 16) == 0 && (WarpsM == 1 || WarpsN == 1));
  static_assert(ValueDim <= HeadDim && ValueDim % (scaled ? 32 : 16) == 0);
  static constexpr int threads = warp_size * WarpsM * WarpsN;
  static constexpr int tile_rows = 16 * WarpsM;
  static constexpr int warp_keys = keys_per_tile / WarpsN;
  /// Elements that are copied at once, 16 bytes.
  static constexpr int chunk = 16 / sizeof(T);
  /// Elements between rows of keys in shared memory: eight rows at one column are in eight
  /// different groups of banks, as HeadDim / chunk + 1 is odd for 64, 80, 96, 128 and 192.
  static constexpr int stride = HeadDim + chunk, value_stride = ValueDim + chunk;
  static constexpr int key_elements = keys_per_tile * stride;
  static constexpr int tile_elements = key_elements + keys_per_tile * value_stride;
  /// A stage has keys and values, then in fp8 the scales of both, then positions. If the tile is in
  /// several runs, the places of its keys follow.
  static constexpr int positions_at =
      tile_elements * sizeof(T) + (scaled ? 2 * keys_per_tile * sizeof(float) : 0);
  static constexpr int stage_bytes = positions_at + 2 * keys_per_tile * sizeof(int64_t);
  static constexpr int stages = 2;
  static constexpr int shared_bytes = stages * stage_bytes;
  /// Few rows: the warps' results, of which four rows are in different banks, maxima and sums.
  static constexpr int result_stride = ValueDim + 8;
  static_assert(WarpsN == 1 || WarpsN * 16 * (result_stride + 2) * 4 <= shared_bytes);
};

/// Begins the copies of a tile's keys, [keys_per_tile, stride], then values, [keys_per_tile,
/// value_stride], then their scales. Zeros follow the last key, as 0 · NaN would spoil the sums. `element_of` says where a
/// key of the tile and its value begin.
template <typename T, int HeadDim, int ValueDim, typename Block, typename ElementOf>
__device__ __forceinline__ void copy_keys(const StoredKeys& from, int num_keys, T* stage,
                                          const ElementOf& element_of) {
  constexpr int chunks = HeadDim / Block::chunk;
  const T* const k = static_cast<const T*>(from.k);
  const T* const v = static_cast<const T*>(from.v);
  static_assert(keys_per_tile * chunks % Block::threads == 0);
  // The places of other sizes take more registers.
  [[maybe_unused]] constexpr int at_once = HeadDim % 64 == 0 ? 8 : 3;
#pragma unroll at_once
  for (int step = 0; step < keys_per_tile * chunks / Block::threads; ++step) {
    const int i = static_cast<int>(threadIdx.x) + step * Block::threads;
    const int key = i / chunks, column = i % chunks * Block::chunk;
    const bool exists = key < num_keys;
    const int64_t element = exists ? element_of(key) + column : element_of(0);
    copy_16_async(stage + key * Block::stride + column, k + element, exists);
    if (ValueDim == HeadDim || column < ValueDim)
      copy_16_async(stage + Block::key_elements + key * Block::value_stride + column, v + element,
                    exists);
  }
  if constexpr (Block::scaled) {
    float* const scales = reinterpret_cast<float*>(stage + Block::tile_elements);
    for (int i = threadIdx.x; i < 2 * keys_per_tile; i += Block::threads) {
      const int key = i % keys_per_tile;
      const bool exists = key < num_keys;
      const float* const all = i < keys_per_tile ? from.k_scales : from.v_scales;
      copy_4_async(scales + i, all + element_of(exists ? key : 0) / HeadDim, exists);
    }
  }
}

/// Returns the positions of a stage's keys.
template <typename Block, typename T>
__device__ __forceinline__ auto* positions_in(T* stage) {
  using Position = std::conditional_t<std::is_const_v<T>, const int64_t, int64_t>;
  return reinterpret_cast<Position*>(stage + Block::positions_at / sizeof(T));
}

/// Does copy_keys for a tile, and writes the positions of its keys.
template <typename T, int HeadDim, int ValueDim, typename Block>
__device__ __forceinline__ void copy_tile(const AttentionParams& params, const KeyTile& tile,
                                          int kv_head, T* stage) {
  const KeyRun run = params.runs[tile.run];
  int64_t* const positions = positions_in<Block>(stage);
  if (tile.within(run)) {
    const int64_t first = run.offset + kv_head * run.head_stride + tile.first_key * HeadDim;
    copy_keys<T, HeadDim, ValueDim, Block>(params.keys, tile.num_keys, stage, [first](int key) {
      return first + int64_t{key} * HeadDim;
    });
    for (int key = threadIdx.x; key < tile.num_keys; key += Block::threads)
      positions[key] = run.position_of(tile.first_key + key);
    return;
  }
  // Each key is looked for once.
  int64_t* const elements = positions + keys_per_tile;
  for (int key = threadIdx.x; key < tile.num_keys; key += Block::threads) {
    const KeyPlace place = place_of(tile, key, params.runs);
    const KeyRun its = params.runs[place.run];
    positions[key] = its.position_of(place.key);
    elements[key] = its.offset + kv_head * its.head_stride + place.key * HeadDim;
  }
  __syncthreads();
  copy_keys<T, HeadDim, ValueDim, Block>(params.keys, tile.num_keys, stage,
                                         [elements](int key) { return elements[key]; });
}

/// Computes the warp's scores, q · k of its 16 rows and keys. They are [2 · key_steps] products
/// next to each other.
template <typename T, typename Block, int DepthSteps, int KeySteps>
__device__ __forceinline__ void multiply_keys(const uint32_t (&queries)[DepthSteps][4],
                                              const T* keys, int lane,
                                              float (&scores)[2 * KeySteps][4]) {
  if constexpr (Block::scaled) {
    const Place place = fp8_row_of_keys(lane);
#pragma unroll
    for (int step = 0; step < DepthSteps; step += 2)
#pragma unroll
      for (int block = 0; block < KeySteps; ++block) {
        uint32_t codes[4];
        load_matrices(codes,
                      keys + (16 * block + place.row) * Block::stride + 16 * step + place.column);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          mma_16x8x16<Bf16>(scores[2 * block + i / 2], queries[step + i % 2], widen_01(codes[i]),
                            widen_23(codes[i]));
      }
  } else {
#pragma unroll
    for (int step = 0; step < DepthSteps; ++step)
#pragma unroll
      for (int block = 0; block < KeySteps; ++block) {
        const Place place = b_row_by_columns(lane);
        uint32_t b[4];
        load_matrices(b,
                      keys + (16 * block + place.row) * Block::stride + 16 * step + place.column);
        mma_16x8x16<T>(scores[2 * block], queries[step], b[0], b[1]);
        mma_16x8x16<T>(scores[2 * block + 1], queries[step], b[2], b[3]);
      }
  }
}

/// out += weights · v for the warp's 16 rows and 16 keys.
template <typename T, typename Block, int DepthSteps>
__device__ __forceinline__ void add_values(const uint32_t (&weights)[4], const T* values, int lane,
                                           float (&out)[2 * DepthSteps][4]) {
  if constexpr (Block::scaled) {
    const Place place = fp8_row_of_values(lane);
#pragma unroll
    for (int block = 0; block < DepthSteps; block += 2) {
      uint32_t codes[4];
      load_matrices_transposed(
          codes, values + place.row * Block::value_stride + 16 * block + place.column);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t first = codes[2 * i], second = codes[2 * i + 1];
        mma_16x8x16<Bf16>(out[2 * (block + i)], weights, widen_02(first), widen_02(second));
        mma_16x8x16<Bf16>(out[2 * (block + i) + 1], weights, widen_13(first), widen_13(second));
      }
    }
  } else {
#pragma unroll
    for (int block = 0; block < DepthSteps; ++block) {
      const Place place = b_row_by_rows(lane);
      uint32_t b[4];
      load_matrices_transposed(
          b, values + place.row * Block::value_stride + 16 * block + place.column);
      mma_16x8x16<T>(out[2 * block], weights, b[0], b[1]);
      mma_16x8x16<T>(out[2 * block + 1], weights, b[2], b[3]);
    }
  }
}

/// Returns the column of value_dim that element `e` of out[block] belongs to.
template <typename Block>
__device__ __forceinline__ int out_column(int lane, int block, int e) {
  if constexpr (Block::scaled) return 16 * (block / 2) + fp8_column(lane, e, block % 2);
  return 8 * block + d_place(lane, e).column;
}

/// Attention with bf16 or fp16 products. Queries and weights are rounded to that type, and sums are
/// fp32. Keys and values of fp8 are widened to bf16 on their way from shared memory. The scale of a
/// key multiplies its scores, and the scale of a value multiplies its weights.
///
/// With WarpsN = 1 a row's bits follow from its own query and keys, tile by tile. In a tile that
/// the row does not see, scores are −inf, so its maximum stays and the factor is 1. Weights are 0
/// and add 0 to the sums. This changes at most the sign of a zero in `out`, so no −0 is written.
/// Products that are added are rounded or fused here, not as the compiler likes in each copy of the
/// code.
///
/// The softmax is online, with exponents to the base 2. Keys come in two stages: one is copied
/// while the other is used. Keys, values and their strides are aligned to 16 bytes. The steps are
/// one function, because their fragments stay in registers from step to step; what dividing it
/// costs has to be timed on a GPU first.
/// A multiprocessor has room for three blocks of few rows, or two of many or of keys of 192 elements,
/// by their registers.
/// Grid: (query tiles, KV heads), or of few rows query tiles · KV heads, heads first. There, plans
/// have room for more tiles (PlanRoom), whose blocks end at once: with tiles first, half of the
/// multiprocessors got only those.
template <typename T, int HeadDim, int WarpsM, int WarpsN, int ValueDim = HeadDim>
__global__ void __launch_bounds__(warp_size* WarpsM* WarpsN, WarpsN > 1 && HeadDim <= 128 ? 3 : 2)
    attention_mma_kernel(AttentionParams params) {
  using Block = MmaBlock<T, HeadDim, WarpsM, WarpsN, ValueDim>;
  using Product = ProductOf<T>;
  constexpr int depth_steps = HeadDim / 16, key_steps = Block::warp_keys / 16;
  constexpr int value_steps = ValueDim / 16;
  constexpr int stage_elements = Block::stage_bytes / sizeof(T);
  constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

  const auto heads = static_cast<uint32_t>(params.num_kv_heads);
  const uint32_t tile_index = WarpsM == 1 ? blockIdx.x / heads : blockIdx.x;
  const int kv_head = static_cast<int>(WarpsM == 1 ? blockIdx.x % heads : blockIdx.y);
  const QueryTile tile = params.query_tiles[tile_index];
  if (tile.num_packed == 0) return;
  prefetch_partial_tile(params, tile, kv_head);
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const int warp_row = WarpsN == 1 ? 16 * warp : 0;
  const int warp_key = WarpsN == 1 ? 0 : Block::warp_keys * warp;
  const int64_t group = params.num_heads / params.num_kv_heads;
  T* const shared = reinterpret_cast<T*>(dynamic_shared());

  // The lane has two rows, r and r + 8 of the warp's sixteen. Beyond the tile's rows they are
  // zeros.
  bool exists[2];
  int64_t positions[2] = {0, 0}, first_element[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int index = warp_row + a_place(lane, half).row;
    exists[half] = index < tile.num_packed;
    const PackedRow row = unpack(tile, kv_head, group, exists[half] ? index : 0);
    if (exists[half]) positions[half] = params.query_positions[row.row];
    first_element[half] = (row.row * params.num_heads + row.head) * HeadDim;
  }
  VisibleWalk walk = to_visible(tile, tile.keys, params.runs, params.window);
  wait_for_earlier_kernels();  // they write q and keys, but nothing that was read so far

  const QueryPairs<4 * depth_steps> pairs(params, [&](int i) {
    const int reg = i % 4;
    const int depth = Block::scaled ? fp8_depth(lane, reg) : a_place(lane, reg).column;
    return first_element[reg % 2] + 16 * (i / 4) + depth;
  });
  if (walk.at.left > 0)
    copy_tile<T, HeadDim, ValueDim, Block>(params, walk.at.tile(), kv_head, shared);
  commit_copies();
  uint32_t queries[depth_steps][4];
#pragma unroll
  for (int i = 0; i < 4 * depth_steps; ++i)
    queries[i / 4][i % 4] = exists[i % 2] ? pairs.template get<Product>(params, i) : 0;

  float maximum[2] = {minus_infinity, minus_infinity}, sum[2] = {0, 0};
  float out[2 * value_steps][4] = {};
  const float factor_to_log2 = params.scale * log2_e;

  for (int stage = 0; walk.at.left > 0; stage ^= 1) {
    KeyWalk after = walk.at;
    after.advance(params.runs);
    const VisibleWalk next = to_visible(tile, after, params.runs, params.window);
    if (next.at.left > 0)
      copy_tile<T, HeadDim, ValueDim, Block>(params, next.at.tile(), kv_head,
                                             shared + (stage ^ 1) * stage_elements);
    commit_copies();
    wait_for_copies<1>();
    __syncthreads();

    if (warp_row < tile.num_packed) {
      const KeyTile key_tile = walk.at.tile();
      const T* const tile_data = shared + stage * stage_elements;
      const T* const keys = tile_data + warp_key * Block::stride;
      const T* const values = tile_data + Block::key_elements + warp_key * Block::value_stride;
      const float* const k_scales =
          reinterpret_cast<const float*>(tile_data + Block::tile_elements);
      const float* const v_scales = k_scales + keys_per_tile;

      float scores[2 * key_steps][4] = {};
      multiply_keys<T, Block, depth_steps, key_steps>(queries, keys, lane, scores);

      const bool masked = key_tile.num_keys < keys_per_tile || walk.seen != TileVisibility::all;
      const int64_t* const key_positions = positions_in<Block>(tile_data);
      Sight sights[2] = {};
      if (masked)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          sights[half] = sight_of(positions[half], params.window);
#pragma unroll
      for (int block = 0; block < 2 * key_steps; ++block)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = warp_key + 8 * block + d_place(lane, e).column;
          scores[block][e] = multiply(scores[block][e], factor_to_log2);
          if constexpr (Block::scaled) scores[block][e] = multiply(scores[block][e], k_scales[key]);
          if (!masked) continue;
          if (key >= key_tile.num_keys || !sights[e / 2].has(key_positions[key]))
            scores[block][e] = minus_infinity;
        }

#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float raised = maximum[half];
#pragma unroll
        for (int block = 0; block < 2 * key_steps; ++block)
          raised = fmaxf(raised, fmaxf(scores[block][2 * half], scores[block][2 * half + 1]));
        raised = warp_max<4>(raised);
        const float base = exponent_base(raised);
        const float factor = exp2_fast(maximum[half] - base);
        maximum[half] = raised;
        sum[half] = multiply(sum[half], factor);
#pragma unroll
        for (int block = 0; block < 2 * value_steps; ++block) {
          out[block][2 * half] *= factor;
          out[block][2 * half + 1] *= factor;
        }
#pragma unroll
        for (int block = 0; block < 2 * key_steps; ++block)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            scores[block][e] = exp2_fast(scores[block][e] - base);
            sum[half] += scores[block][e];
          }
      }

      // Elements of d, two products side by side, are where the next product wants its a.
#pragma unroll
      for (int step = 0; step < key_steps; ++step) {
        float(&low)[4] = scores[2 * step], (&high)[4] = scores[2 * step + 1];
        if constexpr (Block::scaled) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int key = warp_key + 16 * step + d_place(lane, e).column;
            low[e] *= v_scales[key];
            high[e] *= v_scales[key + 8];
          }
        }
        const uint32_t weights[4] = {pack<Product>(low[0], low[1]), pack<Product>(low[2], low[3]),
                                     pack<Product>(high[0], high[1]),
                                     pack<Product>(high[2], high[3])};
        add_values<T, Block, value_steps>(weights, values + 16 * step * Block::value_stride, lane,
                                          out);
      }
    }
    __syncthreads();
    walk = next;
  }
  wait_for_copies<0>();
  let_next_kernel_begin();

#pragma unroll
  for (int half = 0; half < 2; ++half) sum[half] = warp_sum<4>(sum[half]);

  if constexpr (WarpsN == 1) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int index = warp_row + d_place(lane, 2 * half).row;
      if (index >= tile.num_packed) continue;
      const OutputRow to = output_row(params, tile, kv_head, index, Block::tile_rows);
      const bool empty = sum[half] == 0;
#pragma unroll
      for (int block = 0; block < 2 * value_steps; ++block)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e)
          to.put(out_column<Block>(lane, block, e),
                 empty ? 0.0f : out[block][e] / sum[half] + 0.0f);
      if (lane % 4 == 0)
        *to.lse = empty ? minus_infinity : fmaf(maximum[half], ln_2, logf(sum[half]));
    }
  } else {
    // These are each warp's results over its own keys: rows [WarpsN, 16, result_stride], maxima and
    // sums [WarpsN, 16].
    float* const outs = reinterpret_cast<float*>(dynamic_shared());
    float* const maxima = outs + WarpsN * 16 * Block::result_stride;
    float* const sums = maxima + WarpsN * 16;
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int index = d_place(lane, 2 * half).row, row = 16 * warp + index;
      if (index >= tile.num_packed) continue;
#pragma unroll
      for (int block = 0; block < 2 * value_steps; ++block)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e)
          outs[row * Block::result_stride + out_column<Block>(lane, block, e)] = out[block][e];
      if (lane % 4 == 0) maxima[row] = maximum[half], sums[row] = sum[half];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < tile.num_packed * ValueDim; i += Block::threads) {
      const int index = i / ValueDim, column = i % ValueDim;
      float raised = minus_infinity;
#pragma unroll
      for (int w = 0; w < WarpsN; ++w) raised = fmaxf(raised, maxima[16 * w + index]);
      const float base = exponent_base(raised);
      float total = 0, value = 0;
#pragma unroll
      for (int w = 0; w < WarpsN; ++w) {
        const float factor = exp2_fast(maxima[16 * w + index] - base);
        total += factor * sums[16 * w + index];
        value += factor * outs[(16 * w + index) * Block::result_stride + column];
      }
      const OutputRow to = output_row(params, tile, kv_head, index, Block::tile_rows);
      const bool empty = total == 0;
      to.put(column, empty ? 0.0f : value / total);
      if (column == 0) *to.lse = empty ? minus_infinity : raised * ln_2 + logf(total);
    }
  }
  combine_if_last(params, params.query_tiles[tile_index], kv_head, Block::tile_rows);
}

}  // namespace pecia::kernels::cuda
