// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/attention/attention_combine.cuh"
#include "kernels/cuda/attention/attention_queries.cuh"
#include "kernels/cuda/shared/fp8_pairs.cuh"
#include "kernels/cuda/shared/fragments.hpp"
#include "kernels/cuda/shared/online_softmax.hpp"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

/// The block of attention to latents: WarpsM groups of WarpsN warps. A group has 16 packed rows. Its
/// warps divide the keys of a step for the scores, and the columns of the values for the sums.
template <typename T, int KeyDim, int ValueDim, int WarpsM, int WarpsN>
struct LatentBlock {
  using Product = ProductOf<T>;
  static constexpr bool scaled = std::is_same_v<T, Fp8>;
  static constexpr int threads = warp_size * WarpsM * WarpsN, tile_rows = 16 * WarpsM;
  static constexpr int keys = 32;  ///< of a step, as shared memory allows
  static constexpr int warp_keys = keys / WarpsN, warp_columns = ValueDim / WarpsN;
  static constexpr int chunk = 16 / sizeof(T);  ///< elements that are read at once
  /// Elements between rows of queries and keys, and of weights: eight rows at one column are in eight
  /// different groups of banks.
  static constexpr int stride = KeyDim + 8, weight_stride = keys + 8;
  static_assert((warp_keys == 8 || warp_keys == 16) && warp_columns % 16 == 0);
  static_assert(KeyDim % 32 == 0 && ValueDim <= KeyDim && stride / 8 % 2 == 1);

  /// What is read of a step's keys.
  struct Stage {
    Product keys[LatentBlock::keys][stride];  ///< the values are the first ValueDim columns
    int64_t positions[LatentBlock::keys];
    int64_t elements[LatentBlock::keys];  ///< where keys begin, if they lie in several runs
    float scales[LatentBlock::keys];      ///< of fp8
    float unused[4];
  };
  struct Shared {
    Product queries[tile_rows][stride];
    Stage stages[2];
    Product weights[tile_rows][weight_stride];
    float maxima[WarpsN][tile_rows], sums[WarpsN][tile_rows];
  };
  static_assert(sizeof(Stage) % 16 == 0 && sizeof(Product) == 2);
  static constexpr int shared_bytes = sizeof(Shared);
};

/// Reads a step's keys. `element_of` says where a key begins. Zeros follow the last key, as 0 · NaN
/// would spoil the sums. Codes are widened on their way.
template <typename T, int KeyDim, typename Block, typename ElementOf>
__device__ __forceinline__ void copy_latents(const StoredKeys& from, int num_keys,
                                             typename Block::Stage& to,
                                             const ElementOf& element_of) {
  constexpr int chunks = KeyDim / Block::chunk;
  const T* const k = static_cast<const T*>(from.k);
#pragma unroll 4
  for (int i = threadIdx.x; i < Block::keys * chunks; i += Block::threads) {
    const int key = i / chunks, column = i % chunks * Block::chunk;
    const bool exists = key < num_keys;
    if constexpr (Block::scaled) {
      Packed<uint32_t, 4> codes = {};
      if (exists)
        codes = *reinterpret_cast<const Packed<uint32_t, 4>*>(k + element_of(key) + column);
      auto* const pairs = reinterpret_cast<uint32_t*>(&to.keys[key][column]);
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        pairs[2 * word] = widen_01(codes.values[word]);
        pairs[2 * word + 1] = widen_23(codes.values[word]);
      }
    } else {
      copy_16_async(&to.keys[key][column], k + (exists ? element_of(key) + column : element_of(0)),
                    exists);
    }
  }
  if constexpr (Block::scaled)
    for (int key = threadIdx.x; key < Block::keys; key += Block::threads)
      to.scales[key] = key < num_keys ? from.k_scales[element_of(key) / KeyDim] : 0.0f;
}

/// Does copy_latents for a step, and writes the positions of its keys.
template <typename T, int KeyDim, typename Block>
__device__ __forceinline__ void copy_step(const AttentionParams& params, const KeyTile& tile,
                                          int kv_head, typename Block::Stage& to) {
  const KeyRun run = params.runs[tile.run];
  if (tile.within(run)) {
    const int64_t first = run.offset + kv_head * run.head_stride + tile.first_key * KeyDim;
    copy_latents<T, KeyDim, Block>(params.keys, tile.num_keys, to,
                                   [first](int key) { return first + int64_t{key} * KeyDim; });
    for (int key = threadIdx.x; key < tile.num_keys; key += Block::threads)
      to.positions[key] = run.position_of(tile.first_key + key);
    return;
  }
  for (int key = threadIdx.x; key < tile.num_keys; key += Block::threads) {
    const KeyPlace place = place_of(tile, key, params.runs);
    const KeyRun its = params.runs[place.run];
    to.positions[key] = its.position_of(place.key);
    to.elements[key] = its.offset + kv_head * its.head_stride + place.key * KeyDim;
  }
  __syncthreads();
  copy_latents<T, KeyDim, Block>(params.keys, tile.num_keys, to,
                                 [&to](int key) { return to.elements[key]; });
}

/// Computes q · k of the warp's 16 rows and keys, [warp_keys / 8] products next to each other.
/// `queries` and `keys` are the warp's first.
template <typename Block, int KeyDim, typename Product>
__device__ __forceinline__ void multiply_latents(const Product* queries, const Product* keys,
                                                 int lane,
                                                 float (&scores)[Block::warp_keys / 8][4]) {
  const Place a_at = a_row(lane);
#pragma unroll 3
  for (int step = 0; step < KeyDim / 16; step += 2) {
    uint32_t a[2][4], b[4];
#pragma unroll
    for (int s = 0; s < 2; ++s)
      load_matrices(a[s], queries + a_at.row * Block::stride + 16 * (step + s) + a_at.column);
    if constexpr (Block::warp_keys == 8) {  // two steps of depth at once
      load_matrices(b, keys + lane % 8 * Block::stride + 16 * step + 8 * (lane / 8));
      mma_16x8x16<Product>(scores[0], a[0], b[0], b[1]);
      mma_16x8x16<Product>(scores[0], a[1], b[2], b[3]);
    } else {
      const Place b_at = b_row_by_columns(lane);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        load_matrices(b, keys + b_at.row * Block::stride + 16 * (step + s) + b_at.column);
        mma_16x8x16<Product>(scores[0], a[s], b[0], b[1]);
        mma_16x8x16<Product>(scores[1], a[s], b[2], b[3]);
      }
    }
  }
}

/// Attention whose values are the first ValueDim numbers of their keys, with products of bf16 or
/// fp16 and sums of fp32. Keys are read once from memory for all packed rows of a block, that is for
/// all query heads of a KV head that are in the tile, and once from shared memory for scores and for
/// values. Keys of fp8 are widened to bf16; a key's scale multiplies its scores and its weights.
///
/// The softmax is online, with exponents to the base 2. Keys come in steps of 32, in two stages: one
/// is copied while the other is used. A step has four barriers: keys are there; the greatest scores
/// are known to all warps of a group; the weights are; keys are no longer used.
///
/// A row's bits follow from its own query and keys, step by step, in blocks of one shape. Steps that
/// a row does not see leave it as it is.
/// Grid: (query tiles, KV heads). Shared memory: Block::shared_bytes.
template <typename T, int KeyDim, int ValueDim, int WarpsM, int WarpsN>
__global__ void __launch_bounds__(warp_size* WarpsM* WarpsN, WarpsM == 1 ? 2 : 1)
    attention_latent_kernel(AttentionParams params) {
  using Block = LatentBlock<T, KeyDim, ValueDim, WarpsM, WarpsN>;
  using Product = typename Block::Product;
  constexpr int key_blocks = Block::warp_keys / 8, column_blocks = Block::warp_columns / 8;
  constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

  const QueryTile tile = params.query_tiles[blockIdx.x];
  if (tile.num_packed == 0) return;
  const int kv_head = blockIdx.y;
  prefetch_partial_tile(params, tile, kv_head);
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const int warp_row = 16 * (warp / WarpsN), part = warp % WarpsN;
  const int warp_key = Block::warp_keys * part, warp_column = Block::warp_columns * part;
  const int64_t group = params.num_heads / params.num_kv_heads;
  auto& shared = *reinterpret_cast<typename Block::Shared*>(dynamic_shared());

  // The lane has two rows, r and r + 8 of the warp's sixteen. Beyond the tile's rows they are zeros.
  int64_t positions[2] = {0, 0};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int index = warp_row + d_place(lane, 2 * half).row;
    if (index < tile.num_packed)
      positions[half] = params.query_positions[unpack(tile, kv_head, group, index).row];
  }
  VisibleWalk walk = to_visible(tile, tile.keys, params.runs, params.window, Block::keys);
  wait_for_earlier_kernels();  // they write q and keys, but nothing that was read so far

  for (int i = threadIdx.x; i < Block::tile_rows * (KeyDim / 2); i += Block::threads) {
    const int row = i / (KeyDim / 2), column = 2 * (i % (KeyDim / 2));
    float pair[2] = {0, 0};
    if (row < tile.num_packed) {
      const PackedRow its = unpack(tile, kv_head, group, row);
      const int64_t element = (its.row * params.num_heads + its.head) * KeyDim + column;
      pair[0] = query_element<Product>(params, element);
      pair[1] = query_element<Product>(params, element + 1);
    }
    store<2>(pair, &shared.queries[row][column]);
  }
  if (walk.at.left > 0)
    copy_step<T, KeyDim, Block>(params, walk.at.tile(Block::keys), kv_head, shared.stages[0]);
  commit_copies();

  float maximum[2] = {minus_infinity, minus_infinity}, sum[2] = {0, 0};
  float out[column_blocks][4] = {};
  const float factor_to_log2 = params.scale * log2_e;
  const bool has_rows = warp_row < tile.num_packed;

  for (int stage = 0; walk.at.left > 0; stage ^= 1) {
    KeyWalk after = walk.at;
    after.advance(params.runs, Block::keys);
    const VisibleWalk next = to_visible(tile, after, params.runs, params.window, Block::keys);
    if (next.at.left > 0)
      copy_step<T, KeyDim, Block>(params, next.at.tile(Block::keys), kv_head,
                                  shared.stages[stage ^ 1]);
    commit_copies();
    wait_for_copies<1>();
    __syncthreads();

    const typename Block::Stage& keys = shared.stages[stage];
    const int num_keys = walk.at.tile(Block::keys).num_keys;
    const bool masked = num_keys < Block::keys || walk.seen != TileVisibility::all;
    Sight sights[2] = {};
    if (masked)
#pragma unroll
      for (int half = 0; half < 2; ++half) sights[half] = sight_of(positions[half], params.window);
    float scores[key_blocks][4] = {};
    if (has_rows) {
      multiply_latents<Block, KeyDim>(shared.queries[warp_row], keys.keys[warp_key], lane, scores);
      float greatest[2] = {minus_infinity, minus_infinity};
#pragma unroll
      for (int block = 0; block < key_blocks; ++block)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = warp_key + 8 * block + d_place(lane, e).column;
          float& score = scores[block][e];
          score = multiply(score, factor_to_log2);
          if constexpr (Block::scaled) score = multiply(score, keys.scales[key]);
          if (masked && (key >= num_keys || !sights[e / 2].has(keys.positions[key])))
            score = minus_infinity;
          greatest[e / 2] = fmaxf(greatest[e / 2], score);
        }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        greatest[half] = warp_max<4>(greatest[half]);
        if (lane % 4 == 0)
          shared.maxima[part][warp_row + d_place(lane, 2 * half).row] = greatest[half];
      }
    }
    __syncthreads();

    if (has_rows) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warp_row + d_place(lane, 2 * half).row;
        float raised = maximum[half];
#pragma unroll
        for (int n = 0; n < WarpsN; ++n) raised = fmaxf(raised, shared.maxima[n][row]);
        const float base = exponent_base(raised);
        const float factor = exp2_fast(maximum[half] - base);
        maximum[half] = raised;
        sum[half] = multiply(sum[half], factor);
#pragma unroll
        for (int block = 0; block < column_blocks; ++block) {
          out[block][2 * half] *= factor;
          out[block][2 * half + 1] *= factor;
        }
#pragma unroll
        for (int block = 0; block < key_blocks; ++block) {
          const int key = warp_key + 8 * block + d_place(lane, 2 * half).column;
          float weights[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            weights[i] = exp2_fast(scores[block][2 * half + i] - base);
            sum[half] += weights[i];
            if constexpr (Block::scaled) weights[i] *= keys.scales[key + i];
          }
          store<2>(weights, &shared.weights[row][key]);
        }
      }
    }
    __syncthreads();

    if (has_rows) {
      const Place a_at = a_row(lane), b_at = b_row_by_rows(lane);
#pragma unroll
      for (int step = 0; step < Block::keys / 16; ++step) {
        uint32_t a[4], b[4];
        load_matrices(a, &shared.weights[warp_row + a_at.row][16 * step + a_at.column]);
#pragma unroll
        for (int block = 0; block < column_blocks; block += 2) {
          load_matrices_transposed(
              b, &keys.keys[16 * step + b_at.row][warp_column + 8 * block + b_at.column]);
          mma_16x8x16<Product>(out[block], a, b[0], b[1]);
          mma_16x8x16<Product>(out[block + 1], a, b[2], b[3]);
        }
      }
    }
    __syncthreads();
    walk = next;
  }
  wait_for_copies<0>();
  let_next_kernel_begin();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] = warp_sum<4>(sum[half]);
    if (lane % 4 == 0) shared.sums[part][warp_row + d_place(lane, 2 * half).row] = sum[half];
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp_row + d_place(lane, 2 * half).row;
    if (row >= tile.num_packed) continue;
    float total = 0;
#pragma unroll
    for (int n = 0; n < WarpsN; ++n) total += shared.sums[n][row];
    const OutputRow to = output_row(params, tile, kv_head, row, Block::tile_rows);
    const bool empty = total == 0;
#pragma unroll
    for (int block = 0; block < column_blocks; ++block)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; ++e)
        to.put(warp_column + 8 * block + d_place(lane, e).column,
               empty ? 0.0f : out[block][e] / total + 0.0f);
    if (lane % 4 == 0 && part == 0)
      *to.lse = empty ? minus_infinity : fmaf(maximum[half], ln_2, logf(total));
  }
  combine_if_last(params, params.query_tiles[blockIdx.x], kv_head, Block::tile_rows);
}

}  // namespace pecia::kernels::cuda
