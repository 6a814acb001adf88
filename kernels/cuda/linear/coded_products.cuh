// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Products of up to 16 rows of bf16 with weights that are codes, by one block.

#include "kernels/cuda/linear/codes.cuh"
#include "kernels/cuda/shared/fragments.hpp"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

inline constexpr int coded_rows = 16, coded_warps = 8, coded_threads = coded_warps * warp_size;

/// Eight rows of a matrix of codes from `first` on, whose products are eight columns of y. Rows
/// after the last are the last again.
struct CodeTile {
  CodeRows rows;
  CodeScales scales;
  int64_t first;

  __device__ int64_t row(int index) const {
    return first + index < rows.rows ? first + index : rows.rows - 1;
  }
};

/// Eight elements of a row of x from `begin` on, with zeros from `end` on; all zeros without a row.
__device__ __forceinline__ void load_run(const Bf16* row, int begin, int end, uint32_t (&to)[4]) {
  Chunk run{};
  if (row != nullptr && begin + run_numbers <= end) {
    run = *reinterpret_cast<const Chunk*>(row + begin);
  } else if (row != nullptr) {
#pragma unroll
    for (int i = 0; i < run_numbers; ++i)
      if (begin + i < end) run.words[i / 2] |= uint32_t{row[begin + i].bits} << (16 * (i % 2));
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = run.words[i];
}

/// The sums of products of a block, in its shared memory.
template <int Tiles, int Warps = coded_warps>
using CodedSums = float[Warps][coded_rows][8 * Tiles];

/// Computes Σ_i x[t, i] · number[o, i] for 16 rows t and the rows o of each tile. `row_of_x(t)` is
/// null where there is no row; others are aligned to 16 bytes. `tile_of(tile)` is a CodeTile; all
/// have the same depth. Codes are widened in registers, and sums are fp32. Where step and least
/// change within a row, they are applied to the sums over each of their groups: step to that of the
/// values, least to that of x. Elsewhere step is left out.
///
/// The block's warps take stretches of the depth in turn. Each reads its next `Ahead` stretches while it
/// multiplies one; more than one made products of bf16 slower (H100, 1 and 16 rows). What they return in
/// `to` is added by coded_sum in their order. So a sum depends on nothing but its own row of x and its
/// own codes.
template <typename Codes, int Tiles, bool Aligned, int Warps, int Ahead = 1, typename RowOfX,
          typename TileOf>
__device__ __forceinline__ void multiply_codes(const RowOfX& row_of_x, const TileOf& tile_of,
                                               CodedSums<Tiles, Warps>& to) {
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const int own_row = lane / 4, place = lane % 4;
  const Bf16* const low = row_of_x(own_row);
  const Bf16* const high = row_of_x(own_row + 8);
  // 32 bits, as two registers more would not fit (rows of 2^31 numbers have no room in a GPU)
  const auto depth = static_cast<int>(tile_of(0).rows.numbers);

  struct Loaded {
    Chunk chunks[Tiles];
    int scales[Tiles];
  };
  const auto load_stretch = [&](int stretch, Loaded& loaded) {
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
      const CodeTile of = tile_of(tile);
      const int64_t row = of.row(own_row);
      loaded.chunks[tile] =
          load_chunk<Aligned>(of.rows.row(row), chunks_of_stretch * stretch + place, of.rows.bytes);
      loaded.scales[tile] =
          Codes::chunk_scale(of.scales, row, stretch * Codes::numbers + Codes::first_of(place, 0));
    }
  };

  float sums[Tiles][4] = {}, group[Tiles][4] = {}, x_sums[4] = {};
  const int stretches = (depth + Codes::numbers - 1) / Codes::numbers;
  const auto multiply_stretch = [&](int stretch, const Loaded& loaded) {
#pragma unroll
    for (int run = 0; run < Codes::runs; ++run) {
      const int begin = stretch * Codes::numbers + Codes::first_of(place, run);
      uint32_t of_low[4], of_high[4];
      load_run(low, begin, depth, of_low);
      load_run(high, begin, depth, of_high);
      const uint32_t first[4] = {of_low[0], of_high[0], of_low[1], of_high[1]};
      const uint32_t second[4] = {of_low[2], of_high[2], of_low[3], of_high[3]};
#pragma unroll
      for (int tile = 0; tile < Tiles; ++tile) {
        uint32_t b[4];
        Codes::values(loaded.chunks[tile], run, loaded.scales[tile], b);
        float(&into)[4] = Codes::in_groups ? group[tile] : sums[tile];
        mma_16x8x16<Bf16>(into, first, b[0], b[1]);
        mma_16x8x16<Bf16>(into, second, b[2], b[3]);
      }
      if constexpr (Codes::has_least) {
        constexpr uint32_t ones = 0x3f803f80u;
        mma_16x8x16<Bf16>(x_sums, first, ones, ones);
        mma_16x8x16<Bf16>(x_sums, second, ones, ones);
      }
      if constexpr (Codes::in_groups) {
        if (!Codes::ends_group(run, tile_of(0).scales.shift)) continue;
        // What all lanes have of these runs belongs to one group of each row.
        const int number = stretch * Codes::numbers + Codes::first_of(0, run);
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile) {
          const CodeTile of = tile_of(tile);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const Affine affine = Codes::affine(of.scales, of.row(d_place(lane, e).column), number);
            sums[tile][e] += affine.step * group[tile][e] + affine.least * x_sums[e];
            group[tile][e] = 0;
          }
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) x_sums[e] = 0;
      }
    }
  };

  Loaded next[Ahead];
#pragma unroll
  for (int i = 0; i < Ahead; ++i)
    if (warp + i * Warps < stretches) load_stretch(warp + i * Warps, next[i]);
  wait_for_earlier_kernels();  // no kernel writes weights, but the one before may write x
  for (int stretch = warp; stretch < stretches; stretch += Warps) {
    const Loaded now = next[0];
#pragma unroll
    for (int i = 0; i + 1 < Ahead; ++i) next[i] = next[i + 1];
    if (stretch + Ahead * Warps < stretches) load_stretch(stretch + Ahead * Warps, next[Ahead - 1]);
    multiply_stretch(stretch, now);
  }
  let_next_kernel_begin();  // sooner, the next kernel's blocks took room from this one's
#pragma unroll
  for (int tile = 0; tile < Tiles; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const Place at = d_place(lane, e);
      to[warp][at.row][8 * tile + at.column] = sums[tile][e];
    }
  __syncthreads();
}

/// The sum of row t of x and row `index` of a tile, after multiply_codes.
template <typename Codes, int Tiles, int Warps = coded_warps>
__device__ __forceinline__ float coded_sum(const CodedSums<Tiles, Warps>& sums, int t, int tile,
                                           int index, const CodeTile& of) {
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < Warps; ++warp) sum += sums[warp][t][8 * tile + index];
  return Codes::in_groups ? sum : sum * Codes::affine(of.scales, of.row(index), 0).step;
}

}  // namespace pecia::kernels::cuda
