// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/shared/matrix.hpp"
#include "kernels/cuda/shared/vectors.cuh"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

/// Computes rms_norm.hpp's formula. Each thread sums squares in fp32. `Threads` of the block share
/// a row: 32, or all of them. The second pass over a row finds it in the L1 or L2 cache.
/// With `squares`, each thread adds a row's parts in their order.
/// Grid: rows / (threads of the block / Threads), rounded up.
template <int Threads, int Count, typename W, typename Out>
__global__ void rms_norm_kernel(Matrix<const float> x, const W* weight, float eps, Matrix<Out> out,
                                int32_t* marks, int32_t mark, Matrix<const float> parts,
                                int64_t whole_width) {
  constexpr int line = 128 / sizeof(W);
  for (int64_t i = int64_t{line} * threadIdx.x; i < x.columns; i += int64_t{line} * blockDim.x)
    prefetch(weight + i);
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  __shared__ float scratch[warp_size];
  const int rows_per_block = blockDim.x / Threads;
  const int64_t row = int64_t{blockIdx.x} * rows_per_block + threadIdx.x / Threads;
  const int thread = threadIdx.x % Threads;
  const bool exists = row < x.rows;  // whole warps do or do not
  float squares = 0;
  if (exists && parts.columns == 0)
#pragma unroll 4
    for (int64_t i = Count * thread; i < x.columns; i += Count * Threads) {
      float values[Count];
      load<Count>(x.row(row) + i, values);
#pragma unroll
      for (int j = 0; j < Count; ++j) squares += values[j] * values[j];
    }
  squares = Threads == warp_size ? warp_sum(squares) : block_sum(squares, scratch);
  if (!exists) return;
  for (int64_t part = 0; part < parts.columns; ++part) squares += parts.row(row)[part];
  if (marks != nullptr && thread == 0 && !isfinite(squares) && marks[row] == 0) marks[row] = mark;
  const float factor = 1.0f / sqrtf(squares / static_cast<float>(whole_width) + eps);
  for (int64_t i = Count * thread; i < x.columns; i += Count * Threads) {
    float values[Count], weights[Count];
    load<Count>(x.row(row) + i, values);
    load<Count>(weight + i, weights);
#pragma unroll
    for (int j = 0; j < Count; ++j) values[j] = values[j] * factor * weights[j];
    store<Count>(values, out.row(row) + i);
  }
}

}  // namespace pecia::kernels::cuda
