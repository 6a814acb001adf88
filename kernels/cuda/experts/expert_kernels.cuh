// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Experts of bf16 or of codes. Rows are grouped by the expert that they chose, and each group is
/// multiplied together: an expert's weights are read once for every 16 rows that chose it.

#include "kernels/cuda/experts/next_place.cuh"
#include "kernels/cuda/linear/gated_products.cuh"

namespace pecia::kernels::cuda {

/// The pairs of a row and an expert that is here. `order` has the pairs of each expert after those
/// of the one before; pair p is of row p / k. Those of expert e are from offsets[e] to offsets[e + 1].
struct ExpertPairs {
  const int32_t *offsets, *order;
};

/// Makes ExpertPairs of `chosen`, the experts of `pairs` pairs. Experts that are here are `count`
/// from number `first` on. One block. Shared memory: `count` int32.
static __global__ void group_pairs_kernel(const int32_t* chosen, int64_t pairs, int64_t first,
                                          int64_t count, int32_t* offsets, int32_t* order) {
  auto* const counts = reinterpret_cast<int32_t*>(dynamic_shared());
  const auto place = [&](int64_t pair) {
    const int64_t expert = chosen[pair] - first;
    return expert >= 0 && expert < count ? expert : -1;
  };
  for (int64_t e = threadIdx.x; e < count; e += blockDim.x) counts[e] = 0;
  __syncthreads();
  for (int64_t pair = threadIdx.x; pair < pairs; pair += blockDim.x)
    if (const int64_t expert = place(pair); expert >= 0) atomicAdd(counts + expert, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t before = 0;
    for (int64_t e = 0; e < count; ++e) {
      offsets[e] = before;
      const int32_t own = counts[e];
      counts[e] = before;
      before += own;
    }
    offsets[count] = before;
  }
  __syncthreads();
  for (int64_t pair = threadIdx.x; pair < pairs; pair += blockDim.x)
    if (const int64_t expert = place(pair); expert >= 0)
      order[atomicAdd(counts + expert, 1)] = static_cast<int32_t>(pair);
}

/// A block's columns are 8 · Tiles of gate and of up, or of down.
inline constexpr int gate_tiles = 1, down_tiles = 2;

/// out[p, :] = activation(gate_e · x, up_e · x) of the row and the expert of pair p. Grid: (columns
/// of out / (8 · gate_tiles), rounded up; experts).
template <typename Codes, bool Aligned>
__global__ void __launch_bounds__(coded_threads, 2)
    expert_gate_kernel(Matrix<const Bf16> x, int64_t k, const GateAndUp* experts, ExpertPairs pairs,
                       Activation activation, Matrix<Bf16> out) {
  __shared__ CodedSums<2 * gate_tiles> sums;
  const int32_t begin = pairs.offsets[blockIdx.y], end = pairs.offsets[blockIdx.y + 1];
  if (begin == end) return;  // the whole block
  const GateAndUp expert = experts[blockIdx.y];
  const int64_t first_column = int64_t{blockIdx.x} * 8 * gate_tiles;
  for (int32_t first = begin; first < end; first += coded_rows) {
    const auto row_of_x = [&](int t) -> const Bf16* {
      return first + t < end ? x.row(pairs.order[first + t] / k) : nullptr;
    };
    multiply_gated<Codes, gate_tiles, Aligned>(
        row_of_x, expert, first_column, activation, sums, [&](int t, int64_t column, float value) {
          if (first + t < end) out.row(pairs.order[first + t])[column] = rounded_to<Bf16>(value);
        });
    __syncthreads();  // the sums are written again
  }
}

/// out[p, :] = down_e · activated[p, :] of the expert of pair p. Grid: (columns of out / (8 ·
/// down_tiles), rounded up; experts).
template <typename Codes, bool Aligned>
__global__ void __launch_bounds__(coded_threads, 2)
    expert_down_kernel(Matrix<const Bf16> activated, const CodedMatrix* experts, ExpertPairs pairs,
                       Matrix<float> out) {
  constexpr int columns = 8 * down_tiles;
  __shared__ CodedSums<down_tiles> sums;
  const int32_t begin = pairs.offsets[blockIdx.y], end = pairs.offsets[blockIdx.y + 1];
  if (begin == end) return;  // the whole block
  const CodedMatrix expert = experts[blockIdx.y];
  const int64_t first_column = int64_t{blockIdx.x} * columns;
  const auto tile_of = [&](int tile) {
    return CodeTile{expert.rows, expert.scales, first_column + 8 * tile};
  };
  for (int32_t first = begin; first < end; first += coded_rows) {
    const auto row_of_x = [&](int t) -> const Bf16* {
      return first + t < end ? activated.row(pairs.order[first + t]) : nullptr;
    };
    multiply_codes<Codes, down_tiles, Aligned, coded_warps>(row_of_x, tile_of, sums);
    for (int i = threadIdx.x; i < coded_rows * columns; i += coded_threads) {
      const int t = i / columns, tile = i % columns / 8;
      const int64_t column = first_column + i % columns;
      if (first + t >= end || column >= out.columns) continue;
      out.row(pairs.order[first + t])[column] =
          coded_sum<Codes, down_tiles>(sums, t, tile, i % 8, tile_of(tile)) +
          bias_at(expert.bias, column);
    }
    __syncthreads();  // the sums are written again
  }
}

/// y[t, :] = Σ_j weights[t, j] · products[t · k + j, :] over the experts that are here, in the order
/// of their numbers. Grid x is the row, and grid y cuts it into pieces.
static __global__ void sum_pairs_kernel(Matrix<const float> products, const int32_t* chosen,
                                        const float* weights, int64_t k, int64_t first,
                                        int64_t count, Matrix<float> y) {
  const int64_t row = blockIdx.x;
  const int32_t* const own = chosen + row * k;
  for (int64_t i = first_column<1>(); i < y.columns; i += column_step<1>()) {
    float sum = 0;
    int32_t before = -1;
    for (int64_t taken = 0; taken < k; ++taken) {
      const int64_t place = next_place(own, k, before);
      before = own[place];
      if (before < first || before >= first + count) continue;
      sum += weights[row * k + place] * products.row(row * k + place)[i];
    }
    y.row(row)[i] = sum;
  }
}

}  // namespace pecia::kernels::cuda
