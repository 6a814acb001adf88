// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <limits>

#include "kernels/cuda/attention/attention_combine.cuh"
#include "kernels/cuda/shared/fp8_pairs.cuh"
#include "kernels/cuda/shared/fragments.hpp"
#include "kernels/cuda/shared/online_softmax.hpp"
#include "kernels/cuda/shared/vectors.cuh"
#include "kernels/cuda/shared/warp.cuh"
#include "kernels/cuda/shared/wgmma.cuh"

namespace pecia::kernels::cuda {

/// What the block has to know of a tile of keys, written one tile before its keys are copied.
template <int Keys>
struct TileNote {
  int64_t positions[Keys];               ///< beyond the last key no query sees them
  int64_t elements[Keys];                ///< where a key and its value begin; −1 beyond the last
  float k_scales[Keys], v_scales[Keys];  ///< of fp8
  int32_t num_keys;                      ///< 0: there are no more tiles
  int32_t masked;                        ///< whether a row may not see all of them
};

/// The block of attention by wgmma: two warpgroups with 64 packed rows each, and all keys. `Columns`
/// is head_dim, or 96 for heads of 80, whose missing columns are zeros.
template <typename T, int Columns>
struct WgmmaBlock {
  static constexpr bool scaled = std::is_same_v<T, Fp8>;
  static constexpr int threads = 2 * warpgroup_threads, rows = 128;
  static constexpr int keys = Columns > 128 ? 64 : 128;  ///< of a tile, as registers allow
  using Queries = SwizzledMatrix<rows, Columns>;
  using Tile = SwizzledMatrix<keys, Columns>;
  using Note = TileNote<keys>;
  static constexpr int stages = 2, notes = 4;
  static constexpr int keys_at = Queries::bytes;
  static constexpr int values_at = keys_at + stages * Tile::bytes;
  /// Codes of a tile's keys and of its values, each chunk where the thread that copied it finds it.
  static constexpr int codes_at = values_at + stages * Tile::bytes;
  static constexpr int code_bytes = scaled ? Tile::elements : 0;
  static constexpr int notes_at = codes_at + 2 * code_bytes;
  static constexpr int sights_at = notes_at + notes * sizeof(Note);  ///< of the rows
  static constexpr int bytes = sights_at + rows * sizeof(Sight);
  static constexpr int shared_bytes = bytes + Tile::alignment;  ///< the block aligns it itself

  static constexpr int chunk = 16 / sizeof(T);  ///< elements that are copied at once
  static constexpr int chunks = Columns / chunk;
  static constexpr int copies = keys * chunks / threads;  ///< of a thread for a tile's keys
  static_assert(keys * chunks % threads == 0 && Queries::bytes % Tile::alignment == 0 &&
                Tile::bytes % Tile::alignment == 0);
};

/// What the threads of a block share while they go through the keys.
template <typename T, int Columns>
struct WgmmaAttention {
  using Block = WgmmaBlock<T, Columns>;
  using Product = ProductOf<T>;
  using Tile = typename Block::Tile;
  using Note = typename Block::Note;

  const AttentionParams& params;
  unsigned char* shared;  ///< aligned

  __device__ __forceinline__ unsigned char* keys(int tile) const {
    return shared + Block::keys_at + tile % Block::stages * Tile::bytes;
  }
  __device__ __forceinline__ unsigned char* values(int tile) const {
    return shared + Block::values_at + tile % Block::stages * Tile::bytes;
  }
  __device__ __forceinline__ Note& note(int tile) const {
    return reinterpret_cast<Note*>(shared + Block::notes_at)[tile % Block::notes];
  }

  __device__ __forceinline__ Sight* row_sights() const {
    return reinterpret_cast<Sight*>(shared + Block::sights_at);
  }

  /// Writes the note of the next tile that a row may see, and returns the walk after it. A thread for
  /// each key does it.
  __device__ __forceinline__ KeyWalk write_note(KeyWalk walk, Note& to) const {
    const int key = threadIdx.x, kv_head = static_cast<int>(blockIdx.y);
    if (key >= Block::keys) return walk;
    const QueryTile& tile = params.query_tiles[blockIdx.x];  // again, so that it takes no registers
    const VisibleWalk next = to_visible(tile, walk, params.runs, params.window, Block::keys);
    if (next.at.left <= 0) {
      if (key == 0) to.num_keys = 0;
      return next.at;
    }
    const KeyTile keys = next.at.tile(Block::keys);
    if (key == 0) {
      to.num_keys = keys.num_keys;
      to.masked = keys.num_keys < Block::keys || next.seen != TileVisibility::all;
    }
    to.positions[key] = std::numeric_limits<int64_t>::max();
    to.elements[key] = -1;
    if (key < keys.num_keys) {
      const KeyPlace place = place_of(keys, key, params.runs);
      const KeyRun run = params.runs[place.run];
      to.positions[key] = run.position_of(place.key);
      to.elements[key] = run.offset + kv_head * run.head_stride + place.key * params.head_dim;
    }
    walk = next.at;
    walk.advance(params.runs, Block::keys);
    return walk;
  }

  /// Begins this thread's copies of a tile of keys or of values. `to(copy, key, column)` says where a
  /// chunk goes. Zeros follow the last key and the last column, as 0 · NaN would spoil the sums.
  template <typename To>
  __device__ __forceinline__ void copy(const void* from, const Note& of, const To& to) const {
    const T* const first = static_cast<const T*>(from);
    // The rule, with fewer instructions. It takes registers, which sums of wide heads do not leave.
    constexpr bool has_fast_copies = Columns == 64 || Columns == 128;
    if (has_fast_copies && of.num_keys == Block::keys) {
      const T* const of_column = first + place(0).column;
#pragma unroll
      for (int i = 0; i < Block::copies; ++i)
        copy_16_async(to(i, place(i).row, place(i).column), of_column + of.elements[place(i).row],
                      true);
      return;
    }
    [[maybe_unused]] constexpr int at_once = Columns == 96 ? 3 : 1;
#pragma unroll at_once
    for (int i = 0; i < Block::copies; ++i) {
      const auto [key, column] = place(i);
      const int64_t element = of.elements[key];
      const bool exists = element >= 0 && (Columns != 96 || column < params.head_dim);
      copy_16_async(to(i, key, column), first + (exists ? element + column : 0), exists);
    }
  }
  /// The key and the first column of this thread's i-th copy. Without heads of 96, the column is the
  /// same for all of them.
  __device__ __forceinline__ Place place(int i) const {
    const int thread = threadIdx.x;
    if constexpr (Block::threads % Block::chunks == 0)
      return {thread / Block::chunks + i * (Block::threads / Block::chunks),
              thread % Block::chunks * Block::chunk};
    const int chunk = thread + i * Block::threads;
    return {chunk / Block::chunks, chunk % Block::chunks * Block::chunk};
  }
  __device__ __forceinline__ void copy_scales(Note& of) const {
    for (int i = threadIdx.x; i < 2 * Block::keys; i += Block::threads) {
      const int key = i % Block::keys;
      const int64_t element = of.elements[key];
      const bool exists = element >= 0;
      const float* const all = i < Block::keys ? params.keys.k_scales : params.keys.v_scales;
      copy_4_async((i < Block::keys ? of.k_scales : of.v_scales) + key,
                   all + (exists ? element / params.head_dim : 0), exists);
    }
  }

  /// Copies whose chunks go to their place in the tile, of elements, or to the thread's own places, of
  /// codes that widen_codes brings to the tile.
  __device__ __forceinline__ void copy_elements(const void* from, const Note& of,
                                                unsigned char* tile) const {
    copy(from, of, [tile](int, int key, int column) { return tile + Tile::chunk_at(key, column); });
  }
  __device__ __forceinline__ void copy_codes(const void* from, const Note& of, int which) const {
    copy(from, of, [this, which](int i, int, int) { return codes(which, i); });
  }
  __device__ __forceinline__ unsigned char* codes(int which, int copy) const {
    return shared + Block::codes_at + which * Block::code_bytes +
           (copy * Block::threads + static_cast<int>(threadIdx.x)) * 16;
  }
  __device__ __forceinline__ void widen_codes(int which, unsigned char* tile) const {
#pragma unroll
    for (int i = 0; i < Block::copies; ++i) {
      const auto [key, column] = place(i);
      const auto four = *reinterpret_cast<const Packed<uint32_t, 4>*>(codes(which, i));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t first = four.values[2 * half], second = four.values[2 * half + 1];
        *reinterpret_cast<Packed<uint32_t, 4>*>(tile + Tile::chunk_at(key, column + 8 * half)) = {
            widen_01(first), widen_23(first), widen_01(second), widen_23(second)};
      }
    }
  }

  /// Begins what has to be there when tile `tile + 1` follows tile `tile`: keys of the one after it,
  /// and values of that one. Codes are copied one tile earlier and widened here.
  __device__ __forceinline__ void copy_ahead(int tile) const {
    if constexpr (Block::scaled) {
      wait_for_copies<0>();
      if (note(tile + 2).num_keys > 0) widen_codes(0, keys(tile + 2));
      if (note(tile + 1).num_keys > 0) widen_codes(1, values(tile + 1));
      begin_codes(tile);
    } else {
      if (note(tile + 2).num_keys > 0) copy_elements(params.keys.k, note(tile + 2), keys(tile + 2));
      if (note(tile + 1).num_keys > 0)
        copy_elements(params.keys.v, note(tile + 1), values(tile + 1));
    }
    commit_copies();
  }
  /// Codes of keys three tiles after `tile`, and of values two tiles after it.
  __device__ __forceinline__ void begin_codes(int tile) const {
    begin_key_codes(tile + 3);
    if (note(tile + 2).num_keys > 0) copy_codes(params.keys.v, note(tile + 2), 1);
  }
  __device__ __forceinline__ void begin_key_codes(int tile) const {
    if (note(tile).num_keys == 0) return;
    copy_codes(params.keys.k, note(tile), 0);
    copy_scales(note(tile));
  }
  /// How many notes are ahead of the tile whose values are being added.
  static constexpr int notes_ahead = Block::scaled ? 4 : 3;

  /// Writes the tile's queries, rounded, in the order of packed rows, and what they see. Beyond its
  /// rows they are zeros.
  __device__ __forceinline__ void write_queries(const QueryTile& tile, int kv_head) const {
    constexpr int chunks = Columns / 8;
    const int64_t group = params.num_heads / params.num_kv_heads;
    if (const int index = threadIdx.x; index < Block::rows)
      row_sights()[index] =
          index < tile.num_packed
              ? sight_of(params.query_positions[unpack(tile, kv_head, group, index).row],
                         params.window)
              : Sight{};
    for (int i = threadIdx.x; i < Block::rows * chunks; i += Block::threads) {
      const int index = i / chunks, column = i % chunks * 8;
      Packed<uint32_t, 4> pairs = {};
      if (index < tile.num_packed && column < params.head_dim) {
        const PackedRow row = unpack(tile, kv_head, group, index);
        const int64_t element = (row.row * params.num_heads + row.head) * params.head_dim + column;
        if (params.q_is_rounded) {
          pairs = *reinterpret_cast<const Packed<uint32_t, 4>*>(
              static_cast<const Product*>(params.q) + element);
        } else {
          float low[4], high[4];
          load<4>(static_cast<const float*>(params.q) + element, low);
          load<4>(static_cast<const float*>(params.q) + element + 4, high);
          pairs = {pack<Product>(low[0], low[1]), pack<Product>(low[2], low[3]),
                   pack<Product>(high[0], high[1]), pack<Product>(high[2], high[3])};
        }
      }
      *reinterpret_cast<Packed<uint32_t, 4>*>(shared + Block::Queries::chunk_at(index, column)) =
          pairs;
    }
  }

  /// Begins scores = q · keys of a tile, for the warpgroup's 64 rows from `first_row` on.
  __device__ __forceinline__ void multiply_keys(int first_row, int tile,
                                                float (&scores)[Block::keys / 2]) const {
    const uint64_t q =
        Block::Queries::along_columns(shared_address(shared) + Block::Queries::row_at(first_row));
    const uint64_t k = Tile::along_columns(shared_address(keys(tile)));
#pragma unroll
    for (int depth = 0; depth < Columns; depth += 16)
      wgmma_shared<Product, Block::keys>(scores, q + Block::Queries::to_column(depth),
                                         k + Tile::to_column(depth), depth > 0);
    wgmma_commit();
  }
  /// Begins out += weights · values of a tile.
  __device__ __forceinline__ void add_values(const uint32_t (&weights)[Block::keys / 16][4],
                                             int tile, float (&out)[Columns / 2]) const {
    const uint64_t v = Tile::along_rows(shared_address(values(tile)));
#pragma unroll
    for (int step = 0; step < Block::keys / 16; ++step)
      wgmma_registers<Product, Columns>(out, weights[step], v + Tile::to_row(16 * step));
    wgmma_commit();
  }
};

/// A lane's two rows of the online softmax. `maximum` is that of the scores before they are scaled.
struct SoftmaxRows {
  float maximum[2] = {minus_infinity, minus_infinity}, sum[2] = {0, 0};
};

/// Turns scores of a tile into weights, relative to the greatest score so far, and returns in `factor`
/// by what the results over earlier tiles are to be multiplied. Scales and masks come first.
/// `row_sights` are those of the warp's rows.
template <bool Scaled, int Keys>
__device__ __forceinline__ void weigh(const TileNote<Keys>& note, int lane, const Sight* row_sights,
                                      float factor_to_log2, SoftmaxRows& rows,
                                      float (&scores)[Keys / 2], float (&factor)[2]) {
  if constexpr (Scaled) {
#pragma unroll
    for (int i = 0; i < Keys / 2; ++i)
      scores[i] = multiply(scores[i], note.k_scales[8 * (i / 4) + d_place(lane, i % 4).column]);
  }
  if (note.masked) {
    // What Sight::has says, without branches.
    Sight sights[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) sights[half] = row_sights[d_place(lane, 2 * half).row];
#pragma unroll
    for (int i = 0; i < Keys / 2; ++i) {
      const int64_t key = note.positions[8 * (i / 4) + d_place(lane, i % 4).column];
      const Sight& sight = sights[i % 4 / 2];
      const bool unseen = (key > sight.last) | (key < sight.first);
      scores[i] = unseen ? minus_infinity : scores[i];
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float raised = rows.maximum[half];
#pragma unroll
    for (int i = 2 * half; i < Keys / 2; i += 4)
      raised = fmaxf(raised, fmaxf(scores[i], scores[i + 1]));
    raised = warp_max<4>(raised);
    const float before = multiply(exponent_base(rows.maximum[half]), factor_to_log2);
    const float base = multiply(exponent_base(raised), factor_to_log2);
    factor[half] = rows.maximum[half] == minus_infinity ? 0.0f : exp2_fast(before - base);
    rows.maximum[half] = raised;
    float sum = multiply(rows.sum[half], factor[half]);
#pragma unroll
    for (int i = 2 * half; i < Keys / 2; i += 4)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        scores[i + e] = exp2_fast(fmaf(scores[i + e], factor_to_log2, -base));
        sum += scores[i + e];
      }
    rows.sum[half] = sum;
  }
}

/// Attention by the tensor cores of compute capability 9.0, for queries of many packed rows: what
/// attention_mma_kernel.cuh does, by products of a warpgroup that run beside the softmax. Queries,
/// weights and results are rounded as there. `scale` must be positive.
///
/// As in FlashAttention-3 (Shah et al. 2024, §3.2, algorithm 2), the scores of the next tile and the
/// sums of values of this one are products under way together, and the softmax of the next tile
/// begins when its scores are there:
///
///     tensor cores   | q · k of tile t + 1 | weights of t · v       | q · k of t + 2 | …
///     the threads    | begin copies        | softmax of tile t + 1  | …
///
/// All threads copy keys, each chunk by an address of its own, since a tile may be in several runs.
/// There is one barrier of the block for each tile. After it, the keys of tile t + 1 and the values of
/// t are there, and nobody reads those of the tiles before any more.
/// Grid: (query tiles, KV heads).
template <typename T, int Columns>
__global__ void __launch_bounds__(WgmmaBlock<T, Columns>::threads, 1)
    attention_wgmma_kernel(AttentionParams params) {
  using Block = WgmmaBlock<T, Columns>;
  using Product = ProductOf<T>;
  constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

  const QueryTile tile = params.query_tiles[blockIdx.x];
  const int kv_head = static_cast<int>(blockIdx.y);
  if (tile.num_packed == 0) return;
  prefetch_partial_tile(params, tile, kv_head);
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const int group_row = static_cast<int>(threadIdx.x) / warpgroup_threads * 64;
  unsigned char* const memory = dynamic_shared();
  const WgmmaAttention<T, Columns> block = {
      params, memory + (-reinterpret_cast<uintptr_t>(memory) & (Block::Tile::alignment - 1))};

  KeyWalk walk = tile.keys;
#pragma unroll
  for (int i = 0; i < block.notes_ahead - 1; ++i) walk = block.write_note(walk, block.note(i));
  wait_for_earlier_kernels();  // they write q and keys, but nothing that was read so far
  block.write_queries(tile, kv_head);
  __syncthreads();

  SoftmaxRows rows;
  float out[Columns / 2] = {}, scores[Block::keys / 2], factor[2];
  uint32_t weights[Block::keys / 16][4];
  const float factor_to_log2 = params.scale * log2_e;
  const auto soften = [&](const typename Block::Note& note) {
    weigh<Block::scaled, Block::keys>(note, lane, block.row_sights() + 16 * warp, factor_to_log2,
                                      rows, scores, factor);
  };
  // Elements of d, two products side by side, are where the next product wants its a.
  const auto pack_weights = [&](const typename Block::Note& note) {
#pragma unroll
    for (int step = 0; step < Block::keys / 16; ++step) {
      float of[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        of[i] = scores[8 * step + i];
        if constexpr (Block::scaled)
          of[i] *= note.v_scales[16 * step + 8 * (i / 4) + d_place(lane, i % 4).column];
      }
#pragma unroll
      for (int reg = 0; reg < 4; ++reg)
        weights[step][reg] = pack<Product>(of[2 * reg], of[2 * reg + 1]);
    }
  };

  if (block.note(0).num_keys > 0) {
    if constexpr (Block::scaled) {
      block.begin_key_codes(0);
      commit_copies();
      wait_for_copies<0>();
      block.widen_codes(0, block.keys(0));
      block.begin_codes(-2);
    } else {
      block.copy_elements(params.keys.k, block.note(0), block.keys(0));
    }
    commit_copies();
    if constexpr (!Block::scaled) wait_for_copies<0>();
    let_products_see_shared();
    __syncthreads();
    wgmma_fence();
    block.multiply_keys(group_row, 0, scores);
    block.copy_ahead(-1);
    walk = block.write_note(walk, block.note(block.notes_ahead - 1));
    wgmma_wait<0>();
    hold_in_place(scores);
    soften(block.note(0));
    pack_weights(block.note(0));
    int t = 0;
    for (;; ++t) {
      if constexpr (!Block::scaled) wait_for_copies<0>();
      let_products_see_shared();
      __syncthreads();
      if (block.note(t + 1).num_keys == 0) break;
      hold_in_place(scores);
      hold_in_place(out);
      wgmma_fence();
      block.multiply_keys(group_row, t + 1, scores);
      block.add_values(weights, t, out);
      block.copy_ahead(t);
      walk = block.write_note(walk, block.note(t + block.notes_ahead));
      wgmma_wait<1>();
      hold_in_place(scores);
      soften(block.note(t + 1));
      finish_first(rows.sum[0] + rows.sum[1]);  // the softmax, beside the products
      wgmma_wait<0>();
      hold_in_place(out);
#pragma unroll
      for (int i = 0; i < Columns / 2; ++i) out[i] *= factor[i % 4 / 2];
      pack_weights(block.note(t + 1));
    }
    hold_in_place(out);
    wgmma_fence();
    block.add_values(weights, t, out);
    wgmma_wait<0>();
    hold_in_place(out);
    wait_for_copies<0>();
  }
  let_next_kernel_begin();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = warp_sum<4>(rows.sum[half]);
    const int index = 16 * warp + d_place(lane, 2 * half).row;
    if (index >= tile.num_packed) continue;
    const OutputRow to = output_row(params, tile, kv_head, index, Block::rows);
    const bool empty = sum == 0;
    const auto write = [&](auto* row) {
#pragma unroll
      for (int i = 2 * half; i < Columns / 2; i += 4) {
        const int column = 8 * (i / 4) + d_place(lane, 0).column;
        const float pair[2] = {empty ? 0.0f : out[i] / sum + 0.0f,
                               empty ? 0.0f : out[i + 1] / sum + 0.0f};
        if (column < params.head_dim) store<2>(pair, row + column);
      }
    };
    if (to.type == OutType::fp32)
      write(static_cast<float*>(to.out));
    else if (to.type == OutType::bf16)
      write(static_cast<Bf16*>(to.out));
    else
      write(static_cast<Fp16*>(to.out));
    if (lane % 4 == 0)
      *to.lse = empty ? minus_infinity
                      : fmaf(multiply(exponent_base(rows.maximum[half]), factor_to_log2), ln_2,
                             logf(sum));
  }
  combine_if_last(params, params.query_tiles[blockIdx.x], kv_head, Block::rows);
}

}  // namespace pecia::kernels::cuda
