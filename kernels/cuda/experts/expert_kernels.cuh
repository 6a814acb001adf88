// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Experts of bf16 or of codes for few rows each. A block reads an expert's weights once for a group
/// of up to 16 rows.

#include "kernels/cuda/experts/expert_groups.cuh"
#include "kernels/cuda/linear/gated_products.cuh"

namespace pecia::kernels::cuda {

/// Half of the warps of other products of few rows, so that each reads twice as much of the depth after it
/// has waited for its group, its expert and its first numbers. By arithmetic: not measured.
inline constexpr int expert_warps = 4, expert_threads = expert_warps * warp_size;

/// Copies what is the same for all threads of a block into its shared memory. In registers it would
/// take the room of a third of the warps.
template <typename T>
__device__ __forceinline__ void copy_words(const T* from, T* to) {
  constexpr int words = sizeof(T) / sizeof(uint64_t);
  static_assert(words * sizeof(uint64_t) == sizeof(T) && words <= expert_threads);
  if (threadIdx.x < words)
    reinterpret_cast<uint64_t*>(to)[threadIdx.x] =
        reinterpret_cast<const uint64_t*>(from)[threadIdx.x];
  __syncthreads();
}

/// out[i, :] = activation(gate_e · x, up_e · x) of the row and the expert of the pair at place i, both
/// times input_factor. Grid: (columns of out / (8 · Tiles), rounded up; groups of at most 16 pairs).
template <typename Codes, bool Aligned, int Tiles, int Ahead, int Blocks>
__global__ void __launch_bounds__(expert_threads, Blocks)
    expert_gate_kernel(Matrix<const Bf16> x, int64_t k, const GateAndUp* experts, FewGroups groups,
                       const float* weights, Activation activation, Matrix<Bf16> out) {
  __shared__ CodedSums<2 * Tiles, expert_warps> sums;
  __shared__ GateAndUp expert;
  wait_for_earlier_kernels();
  const ExpertGroup group = groups.group(blockIdx.y);
  if (group.expert < 0) return;  // the whole block
  copy_words(experts + group.expert, &expert);
  const int rows = group.end - group.begin;
  const auto row_of_x = [&](int t) -> const Bf16* {
    return t < rows ? x.row(groups.pair(group.begin + t) / k) : nullptr;
  };
  const auto factor_of = [&](int t) {
    return t < rows ? input_factor(weights, groups.pair(group.begin + t)) : 1.0f;
  };
  multiply_gated<Codes, Tiles, Aligned, expert_warps, Ahead>(
      row_of_x, factor_of, expert, int64_t{blockIdx.x} * 8 * Tiles, activation, sums,
      [&](int t, int64_t column, float value) {
        if (t < rows) out.row(group.begin + t)[column] = rounded_to<Bf16>(value);
      });
}

/// out[p, :] = down_e · activated[i, :] of the expert of the pair p at place i. Grid: (columns of out /
/// (8 · Tiles), rounded up; groups of at most 16 pairs).
template <typename Codes, bool Aligned, int Tiles, int Ahead, int Blocks>
__global__ void __launch_bounds__(expert_threads, Blocks)
    expert_down_kernel(Matrix<const Bf16> activated, const QuantizedMatrix* experts,
                       FewGroups groups, Matrix<float> out) {
  constexpr int columns = 8 * Tiles;
  __shared__ CodedSums<Tiles, expert_warps> sums;
  __shared__ QuantizedMatrix expert;
  wait_for_earlier_kernels();
  const ExpertGroup group = groups.group(blockIdx.y);
  if (group.expert < 0) return;  // the whole block
  copy_words(experts + group.expert, &expert);
  const int rows = group.end - group.begin;
  const int64_t first_column = int64_t{blockIdx.x} * columns;
  const auto tile_of = [&](int tile) {
    return CodeTile{expert.rows, expert.scales, first_column + 8 * tile};
  };
  const auto row_of_x = [&](int t) -> const Bf16* {
    return t < rows ? activated.row(group.begin + t) : nullptr;
  };
  multiply_codes<Codes, Tiles, Aligned, expert_warps, Ahead>(row_of_x, tile_of, sums);
  for (int i = threadIdx.x; i < coded_rows * columns; i += expert_threads) {
    const int t = i / columns, tile = i % columns / 8;
    const int64_t column = first_column + i % columns;
    if (t >= rows || column >= out.columns) continue;
    out.row(groups.pair(group.begin + t))[column] =
        coded_sum<Codes, Tiles, expert_warps>(sums, t, tile, i % 8, tile_of(tile)) +
        bias_at(expert.bias, column);
  }
}

}  // namespace pecia::kernels::cuda
