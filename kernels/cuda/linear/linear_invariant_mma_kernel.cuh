// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/api/linear.hpp"
#include "kernels/cuda/linear/tile_block.cuh"
#include "kernels/cuda/shared/matrix.hpp"

namespace pecia::kernels::cuda {

/// Begins the copy of elements [begin, begin + depth) of `count` rows, [count, stride]. Elements
/// are zeros where there is no row, and from `end` on. With `Aligned`, the rows, `begin` and `end`
/// are aligned to chunks.
template <typename Block, bool Aligned, typename T>
__device__ __forceinline__ void copy_rows(const Matrix<const T>& from, int64_t first_row, int count,
                                          int64_t begin, int64_t end, T* to) {
  constexpr int width = Aligned ? Block::chunk : 1, pieces = Block::depth / width;
#pragma unroll 4
  for (int i = threadIdx.x; i < count * pieces; i += Block::threads) {
    const int row = i / pieces, column = i % pieces * width;
    const bool exists = first_row + row < from.rows && begin + column < end;
    const T* const source = exists ? from.row(first_row + row) + begin + column : from.data;
    T* const place = to + row * Block::stride + column;
    if constexpr (Aligned)
      copy_16_async(place, source, exists);
    else
      *place = exists ? *source : T{};
  }
}

/// Computes a tile of y (+)= x · weightᵀ + bias for rows of bf16 or fp16, with sums in fp32. With
/// several splits it computes a tile of the sum over one split. This goes to its own rows of `to`,
/// [splits · rows, out]. The first split has the bias.
///
/// Each element is one chain of products of 16 elements, in order. The chain begins with the bias
/// or 0 and has zeros after the last element. It is the same in every Block, Aligned or not.
/// Grid: (tiles of rows × columns, rows first; splits). Shared memory: Block::shared_bytes.
template <typename T, typename Block, bool Aligned>
__global__ void __launch_bounds__(Block::threads, 2)
    linear_invariant_mma_kernel(Matrix<const T> x, Matrix<const T> weight, const float* bias,
                                Accumulate accumulate, Matrix<float> to, int64_t split_elements) {
  constexpr int row_tiles = Block::row_tiles, pairs = Block::column_pairs, depth = Block::depth;
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const int warp_row = 16 * row_tiles * (warp / Block::warps_n);
  const int warp_column = 16 * pairs * (warp % Block::warps_n);
  const int64_t tiles = (x.rows + Block::rows - 1) / Block::rows;
  const int64_t first_row = blockIdx.x % tiles * Block::rows;
  const int64_t first_column = blockIdx.x / tiles * Block::columns;
  const int64_t begin = blockIdx.y * split_elements, end = begin + split_elements;
  T* const shared = reinterpret_cast<T*>(dynamic_shared());

  float sums[row_tiles][2 * pairs][4] = {};
  if (bias != nullptr && blockIdx.y == 0) {
#pragma unroll
    for (int block = 0; block < 2 * pairs; ++block)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t column = first_column + warp_column + 8 * block + d_place(lane, e).column;
        const float first = column < weight.rows ? bias[column] : 0.0f;
#pragma unroll
        for (int tile = 0; tile < row_tiles; ++tile) sums[tile][block][e] = first;
      }
  }

  const auto copy_stage = [&](int64_t index) {
    T* const stage = shared + index % Block::stages * Block::stage_elements;
    const int64_t from = begin + index * depth;
    if (from < end) {
      copy_rows<Block, Aligned>(x, first_row, Block::rows, from, end, stage);
      copy_rows<Block, Aligned>(weight, first_column, Block::columns, from, end,
                                stage + Block::rows * Block::stride);
    }
    commit_copies();
  };
  for (int index = 0; index < Block::stages - 1; ++index) copy_stage(index);
  const int64_t num_stages = (split_elements + depth - 1) / depth;
  for (int64_t index = 0; index < num_stages; ++index) {
    wait_for_copies<Block::stages - 2>();
    __syncthreads();
    copy_stage(index + Block::stages - 1);  // over the stage before, which all have left

    multiply_stage<T, Block>(shared + index % Block::stages * Block::stage_elements,
                             split_elements - index * depth, sums);
  }
  wait_for_copies<0>();

#pragma unroll
  for (int tile = 0; tile < row_tiles; ++tile)
#pragma unroll
    for (int block = 0; block < 2 * pairs; ++block)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Place place = d_place(lane, e);
        const int64_t row = first_row + warp_row + 16 * tile + place.row;
        const int64_t column = first_column + warp_column + 8 * block + place.column;
        if (row >= x.rows || column >= weight.rows) continue;
        float* const y = to.row(blockIdx.y * x.rows + row) + column;
        *y = accumulate == Accumulate::yes ? *y + sums[tile][block][e] : sums[tile][block][e];
      }
}

}  // namespace pecia::kernels::cuda
