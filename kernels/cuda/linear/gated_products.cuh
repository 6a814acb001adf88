// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Products of up to 16 rows with the gate and the up matrix of a feed-forward, and their activation,
/// by one block.

#include "kernels/cuda/linear/coded_products.cuh"
#include "kernels/cuda/shared/bias.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

/// A matrix of bf16 or of codes.
struct QuantizedMatrix {
  CodeRows rows;
  CodeScales scales;
  Bias bias;
};
/// Both have as many rows, and their scales change at the same numbers of a row.
struct GateAndUp {
  QuantizedMatrix gate, up;
};

/// Computes activation(factor · gate · x, factor · up · x) for 16 rows of x, whose factors are
/// factor_of(t), and 8 · Tiles columns from `first_column` on. `row_of_x` is as multiply_codes wants
/// it, and `Warps` and `Ahead` are its own. `write(t, column, value)` is called once for each row and each column before the matrices'
/// last. Threads may read `sums` when this returns.
template <typename Codes, int Tiles, bool Aligned, int Warps = coded_warps, int Ahead = 1,
          typename RowOfX, typename FactorOf, typename Write>
__device__ __forceinline__ void multiply_gated(const RowOfX& row_of_x, const FactorOf& factor_of,
                                               const GateAndUp& weights, int64_t first_column,
                                               Activation activation,
                                               CodedSums<2 * Tiles, Warps>& sums,
                                               const Write& write) {
  constexpr int columns = 8 * Tiles;
  const auto tile_of = [&](int tile) {
    const QuantizedMatrix& matrix = tile < Tiles ? weights.gate : weights.up;
    return CodeTile{matrix.rows, matrix.scales, first_column + 8 * (tile % Tiles)};
  };
  multiply_codes<Codes, 2 * Tiles, Aligned, Warps, Ahead>(row_of_x, tile_of, sums);
  for (int i = threadIdx.x; i < coded_rows * columns; i += Warps * warp_size) {
    const int t = i / columns, tile = i % columns / 8, index = i % 8;
    const int64_t column = first_column + i % columns;
    if (column >= weights.gate.rows.rows) continue;
    const auto product = [&](int of, const QuantizedMatrix& matrix) {
      return coded_sum<Codes, 2 * Tiles, Warps>(sums, t, of, index, tile_of(of)) +
             bias_at(matrix.bias, column);
    };
    const float factor = factor_of(t);
    write(t, column,
          activated(factor * product(tile, weights.gate),
                    factor * product(tile + Tiles, weights.up), activation));
  }
}

}  // namespace pecia::kernels::cuda
