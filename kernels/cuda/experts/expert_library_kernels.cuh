// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a library for grouped products needs around it: rows that stand together, weights of bf16 or
/// rows of fp8, and arrays that say where each group's matrices lie.

#include "kernels/cuda/experts/expert_groups.cuh"
#include "kernels/cuda/experts/grouped_matmul.hpp"
#include "kernels/cuda/linear/gated_products.cuh"
#include "kernels/cuda/linear/widen_codes_kernel.cuh"
#include "kernels/cuda/quantize_rows_kernel.cuh"

namespace pecia::kernels::cuda {

/// The experts' matrices of one kind in a table on the device: matrix e is at e · step.
struct ExpertMatrixTable {
  const QuantizedMatrix* first;
  int64_t step;

  PECIA_HD const QuantizedMatrix& of(int32_t expert) const { return first[expert * step]; }
};

/// to[places[p], :] = x[p / k, :] for each pair p that has a place, times input_factor and rounded
/// where `weights` is not null. So x is read once and written k times. Rows are aligned to 16 bytes.
/// Grid x is the row of x, and grid y cuts it into pieces.
static __global__ void place_rows_kernel(Matrix<const Bf16> x, const int32_t* places, int64_t k,
                                         const float* weights, Matrix<Bf16> to) {
  using Numbers = Packed<Bf16, run_numbers>;
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const int64_t row = blockIdx.x;
  const int32_t* const own = places + row * k;
  for (int64_t i = first_column<run_numbers>(); i < x.columns; i += column_step<run_numbers>()) {
    const auto numbers = *reinterpret_cast<const Numbers*>(x.row(row) + i);
    for (int64_t j = 0; j < k; ++j) {
      if (own[j] < 0) continue;
      if (weights == nullptr) {
        *reinterpret_cast<Numbers*>(to.row(own[j]) + i) = numbers;
        continue;
      }
      float values[run_numbers];
      load<run_numbers>(x.row(row) + i, values);
#pragma unroll
      for (int c = 0; c < run_numbers; ++c) values[c] *= weights[row * k + j];
      store<run_numbers>(values, to.row(own[j]) + i);
    }
  }
}

/// Does the same with rows of x that are codes: the scale of a copy is its row's, times the pair's weight
/// where `weights` is not null. A row has whole chunks.
static __global__ void place_codes_kernel(Matrix<const Fp8> x, const float* scales,
                                          const int32_t* places, int64_t k, const float* weights,
                                          Matrix<Fp8> to, float* to_scales) {
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const int64_t row = blockIdx.x;
  const int32_t* const own = places + row * k;
  if (blockIdx.y == 0)
    for (int64_t j = threadIdx.x; j < k; j += blockDim.x)
      if (own[j] >= 0) to_scales[own[j]] = scales[row] * input_factor(weights, row * k + j);
  for (int64_t i = first_column<chunk_bytes>(); i < x.columns; i += column_step<chunk_bytes>()) {
    const auto codes = *reinterpret_cast<const Chunk*>(x.row(row) + i);
    for (int64_t j = 0; j < k; ++j)
      if (own[j] >= 0) *reinterpret_cast<Chunk*>(to.row(own[j]) + i) = codes;
  }
}

/// Computes quantize_rows.hpp's formula for the row of each pair that has a place. A block takes a pair.
/// Rows are aligned to 16 bytes.
static __global__ void quantize_pairs_kernel(Matrix<const Bf16> x, const int32_t* places,
                                             Matrix<Fp8> codes, float* scales) {
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const int32_t row = places[blockIdx.x];
  if (row < 0) return;  // the whole block
  quantize_row<run_numbers>(x.row(row), x.columns, codes.row(row), scales + row, nullptr);
}

/// Widens the matrix of each group's expert: row r of group g is row g · rows + r of `to`, whose rows
/// are aligned to 16 bytes. Groups without an expert get nothing. Grid x is the row of `to`, and grid
/// y cuts it into pieces.
template <typename Codes>
__global__ void widen_experts_kernel(ExpertMatrixTable experts, const ExpertGroup* groups,
                                     int64_t rows, Matrix<Bf16> to) {
  wait_for_earlier_kernels();
  const ExpertGroup group = groups[blockIdx.x / rows];
  if (group.expert < 0) return;  // the whole block
  const QuantizedMatrix& matrix = experts.of(group.expert);
  widen_row<Codes, true>(matrix.rows, matrix.scales, blockIdx.x % rows, to.row(blockIdx.x));
}

/// Describes y = x · weightsᵀ + bias for each group: rows [begin, end) of x and y, and the weights of
/// its expert, which are rows g · y.columns … of `widened` unless that has no rows. `x_scales` are of
/// x's rows where T is fp8. A block is a group.
template <typename T>
__global__ void describe_groups_kernel(ExpertMatrixTable experts, const ExpertGroup* groups,
                                       Matrix<const T> x, const float* x_scales,
                                       Matrix<const T> widened, Matrix<Bf16> y, GroupArrays to) {
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const int64_t g = blockIdx.x;
  const ExpertGroup group = groups[g];
  const QuantizedMatrix& matrix = experts.of(group.expert < 0 ? 0 : group.expert);
  if (threadIdx.x == 0) {
    to.shapes[g] = {group.end - group.begin, static_cast<int32_t>(y.columns),
                    static_cast<int32_t>(x.columns)};
    to.x[g] = x.row(group.begin);
    to.y[g] = y.row(group.begin);
    to.x_strides[g] = x.stride;
    to.y_strides[g] = y.stride;
    const bool own = widened.rows == 0;
    to.weights[g] = own ? reinterpret_cast<const T*>(matrix.rows.data) : widened.row(g * y.columns);
    to.weight_strides[g] =
        own ? matrix.rows.stride / static_cast<int64_t>(sizeof(T)) : widened.stride;
    if constexpr (std::is_same_v<T, Fp8>) to.x_scales[g] = x_scales + group.begin;
  }
  for (int64_t column = threadIdx.x; column < y.columns; column += blockDim.x) {
    to.bias[g * y.columns + column] = bias_at(matrix.bias, column);
    if constexpr (std::is_same_v<T, Fp8>)
      to.weight_scales[g * y.columns + column] = Fp8RowCodes::affine(matrix.scales, column, 0).step;
  }
}

}  // namespace pecia::kernels::cuda
