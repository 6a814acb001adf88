// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/api/linear.hpp"
#include "kernels/cuda/linear/coded_products.cuh"
#include "kernels/cuda/shared/bias.cuh"

namespace pecia::kernels::cuda {

/// y[t, o] (+)= Σ_i x[t, i] · number[o, i] + bias[o] for few rows of x, which are aligned to 16
/// bytes. A block has Warps warps, 16 rows and 8 · Tiles columns of y, and a multiprocessor has room
/// for `Blocks` blocks. Grid x: tiles of rows × tiles of columns, rows first, so that blocks with the
/// same codes run side by side.
template <typename Codes, int Tiles, bool Aligned, int Warps, int Blocks>
__global__ void __launch_bounds__(warp_size* Warps, Blocks)
    coded_few_rows_kernel(Matrix<const Bf16> x, CodeRows weight, CodeScales scales, Bias bias,
                          Accumulate accumulate, Matrix<float> y) {
  __shared__ CodedSums<Tiles, Warps> sums;
  constexpr int columns = 8 * Tiles;
  const int64_t row_tiles = (x.rows + coded_rows - 1) / coded_rows;
  const int64_t first_row = blockIdx.x % row_tiles * coded_rows;
  const int64_t first_column = blockIdx.x / row_tiles * columns;
  const auto row_of_x = [&](int t) -> const Bf16* {
    return first_row + t < x.rows ? x.row(first_row + t) : nullptr;
  };
  const auto tile_of = [&](int tile) { return CodeTile{weight, scales, first_column + 8 * tile}; };
  multiply_codes<Codes, Tiles, Aligned, Warps>(row_of_x, tile_of, sums);
  for (int i = threadIdx.x; i < coded_rows * columns; i += warp_size * Warps) {
    const int t = i / columns, index = i % columns;
    const int64_t row = first_row + t, column = first_column + index;
    if (row >= x.rows || column >= weight.rows) continue;
    const float sum =
        coded_sum<Codes, Tiles, Warps>(sums, t, index / 8, index % 8, tile_of(index / 8)) +
        bias_at(bias, column);
    float* const to = y.row(row) + column;
    *to = accumulate == Accumulate::yes ? *to + sum : sum;
  }
}

}  // namespace pecia::kernels::cuda
