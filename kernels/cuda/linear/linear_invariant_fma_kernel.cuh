// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/api/linear.hpp"
#include "kernels/cuda/shared/instructions.cuh"
#include "kernels/cuda/shared/matrix.hpp"

namespace pecia::kernels::cuda {

inline constexpr int linear_fma_tile = 64;  ///< rows and columns of y that a block computes
inline constexpr int linear_fma_side = 16;  ///< its threads, side × side

/// Does what linear_invariant_mma_kernel does, for fp32. Each element is one chain of fused
/// multiply-adds in order, which begins with the bias or 0. A block has linear_fma_side² threads.
/// Grid: (tiles of rows × columns, rows first; splits).
static __global__ void __launch_bounds__(linear_fma_side* linear_fma_side)
    linear_invariant_fma_kernel(Matrix<const float> x, Matrix<const float> weight,
                                const float* bias, Accumulate accumulate, Matrix<float> to,
                                int64_t split_elements) {
  constexpr int tile = linear_fma_tile, side = linear_fma_side, each = tile / side, depth = 32;
  __shared__ float rows[tile][depth + 1], columns[tile][depth + 1];
  const int thread_row = threadIdx.x / side, thread_column = threadIdx.x % side;
  const int64_t tiles = (x.rows + tile - 1) / tile;
  const int64_t first_row = blockIdx.x % tiles * tile, first_column = blockIdx.x / tiles * tile;
  const int64_t begin = blockIdx.y * split_elements, end = begin + split_elements;

  // Element [r][c] belongs to row thread_row + r · side and column thread_column + c · side.
  float sums[each][each];
#pragma unroll
  for (int c = 0; c < each; ++c) {
    const int64_t column = first_column + thread_column + c * side;
    const bool biased = bias != nullptr && blockIdx.y == 0 && column < weight.rows;
#pragma unroll
    for (int r = 0; r < each; ++r) sums[r][c] = biased ? bias[column] : 0.0f;
  }

  for (int64_t from = begin; from < end; from += depth) {
    __syncthreads();
    for (int i = threadIdx.x; i < tile * depth; i += side * side) {
      const int line = i / depth;
      const int64_t element = from + i % depth;
      rows[line][i % depth] =
          first_row + line < x.rows && element < end ? x.row(first_row + line)[element] : 0.0f;
      columns[line][i % depth] = first_column + line < weight.rows && element < end
                                     ? weight.row(first_column + line)[element]
                                     : 0.0f;
    }
    __syncthreads();
    const int count = static_cast<int>(min(int64_t{depth}, end - from));
    for (int k = 0; k < count; ++k)
#pragma unroll
      for (int r = 0; r < each; ++r)
#pragma unroll
        for (int c = 0; c < each; ++c)
          sums[r][c] = fmaf(rows[thread_row + r * side][k], columns[thread_column + c * side][k],
                            sums[r][c]);
  }

#pragma unroll
  for (int r = 0; r < each; ++r)
#pragma unroll
    for (int c = 0; c < each; ++c) {
      const int64_t row = first_row + thread_row + r * side;
      const int64_t column = first_column + thread_column + c * side;
      if (row >= x.rows || column >= weight.rows) continue;
      float* const y = to.row(blockIdx.y * x.rows + row) + column;
      *y = accumulate == Accumulate::yes ? *y + sums[r][c] : sums[r][c];
    }
}

}  // namespace pecia::kernels::cuda
