// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/linear/gated_products.cuh"

namespace pecia::kernels::cuda {

/// out[t, :] = activation(gate · x[t], up · x[t]) for few rows of x, which are aligned to 16 bytes.
/// A block has 16 rows and 8 columns of out, and a multiprocessor has room for `Blocks` blocks.
/// Grid x: tiles of rows × tiles of columns, rows first, so that blocks with the same weights run
/// side by side.
template <typename Codes, bool Aligned, int Blocks>
__global__ void __launch_bounds__(coded_threads, Blocks)
    gated_linear_kernel(Matrix<const Bf16> x, GateAndUp weights, Activation activation,
                        Matrix<Bf16> out) {
  __shared__ CodedSums<2> sums;
  const int64_t row_tiles = (x.rows + coded_rows - 1) / coded_rows;
  const int64_t first_row = blockIdx.x % row_tiles * coded_rows;
  const int64_t first_column = blockIdx.x / row_tiles * 8;
  const auto row_of_x = [&](int t) -> const Bf16* {
    return first_row + t < x.rows ? x.row(first_row + t) : nullptr;
  };
  multiply_gated<Codes, 1, Aligned>(
      row_of_x, [](int) { return 1.0f; }, weights, first_column, activation, sums,
      [&](int t, int64_t column, float value) {
        if (first_row + t < x.rows) out.row(first_row + t)[column] = rounded_to<Bf16>(value);
      });
}

}  // namespace pecia::kernels::cuda
