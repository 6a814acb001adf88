// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/shared/fragments.hpp"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

/// The block of a product on tensor cores. It has WarpsM × WarpsN warps, each with RowTiles × 16
/// rows of x and ColumnPairs × 16 columns of y. `Depth` elements of the sum are copied at once,
/// into one of `Stages` places.
template <int WarpsM, int WarpsN, int RowTiles, int ColumnPairs, int Depth, int Stages>
struct LinearBlock {
  static constexpr int warps_n = WarpsN, row_tiles = RowTiles, column_pairs = ColumnPairs;
  static constexpr int depth = Depth, stages = Stages;
  static constexpr int threads = warp_size * WarpsM * WarpsN;
  static constexpr int rows = 16 * RowTiles * WarpsM, columns = 16 * ColumnPairs * WarpsN;
  static constexpr int chunk = 8;  ///< elements that are copied at once, 16 bytes
  /// Elements between rows in shared memory: eight rows at one column are in eight different groups
  /// of banks, as stride / chunk is odd.
  static constexpr int stride = Depth + chunk;
  static_assert(Depth % 16 == 0 && stride / chunk % 2 == 1);
  static constexpr int stage_elements = (rows + columns) * stride;
  static constexpr int shared_bytes = Stages * stage_elements * 2;
};

/// sums[tile][block] += the products over one stage, [rows + columns, stride] in shared memory, of
/// which `left` elements of each row are left. Only the first row of a warp's tiles and its first
/// column depend on the warp.
template <typename T, typename Block>
__device__ __forceinline__ void multiply_stage(
    const T* stage, int64_t left, float (&sums)[Block::row_tiles][2 * Block::column_pairs][4]) {
  constexpr int row_tiles = Block::row_tiles, pairs = Block::column_pairs;
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const T* const rows = stage + 16 * row_tiles * (warp / Block::warps_n) * Block::stride;
  const T* const columns =
      stage + (Block::rows + 16 * pairs * (warp % Block::warps_n)) * Block::stride;
#pragma unroll
  for (int k = 0; k < Block::depth; k += 16) {
    if (k >= left) break;
    uint32_t a[row_tiles][4];
#pragma unroll
    for (int tile = 0; tile < row_tiles; ++tile) {
      const Place place = a_row(lane);
      load_matrices(a[tile], rows + (16 * tile + place.row) * Block::stride + k + place.column);
    }
#pragma unroll
    for (int pair = 0; pair < pairs; ++pair) {
      const Place place = b_row_by_columns(lane);
      uint32_t b[4];
      load_matrices(b, columns + (16 * pair + place.row) * Block::stride + k + place.column);
#pragma unroll
      for (int tile = 0; tile < row_tiles; ++tile) {
        mma_16x8x16<T>(sums[tile][2 * pair], a[tile], b[0], b[1]);
        mma_16x8x16<T>(sums[tile][2 * pair + 1], a[tile], b[2], b[3]);
      }
    }
  }
}

}  // namespace pecia::kernels::cuda
