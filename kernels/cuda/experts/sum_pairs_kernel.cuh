// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

/// y[t, :] = Σ_j weights[t, j] · products[t · k + j, :] over the experts that are here, `count` from
/// number `first` on, in the order of their numbers, with weights of 1 where `weights` is null. Row
/// `rows[p]` of the products is that of pair p, or row p where `rows` is null. Grid x is the row, and
/// grid y cuts it into pieces. Shared memory: k int32 and k floats.
template <int Count, typename T>
__global__ void sum_pairs_kernel(Matrix<const T> products, const int32_t* rows,
                                 const int32_t* chosen, const float* weights, int64_t k,
                                 int64_t first, int64_t count, Matrix<float> y) {
  auto* const places = reinterpret_cast<int32_t*>(dynamic_shared());
  auto* const factors = reinterpret_cast<float*>(places + k);
  __shared__ int here;
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const int64_t row = blockIdx.x;
  const int32_t* const own = chosen + row * k;
  const auto is_here = [&](int32_t expert) { return expert >= first && expert < first + count; };
  if (threadIdx.x == 0) here = 0;
  __syncthreads();
  for (int64_t j = threadIdx.x; j < k; j += blockDim.x) {
    if (!is_here(own[j])) continue;
    int before = 0;
    for (int64_t i = 0; i < k; ++i) before += is_here(own[i]) && own[i] < own[j];
    const int64_t pair = row * k + j;
    places[before] = rows != nullptr ? rows[pair] : static_cast<int32_t>(pair);
    factors[before] = weights != nullptr ? weights[pair] : 1.0f;
    atomicAdd(&here, 1);
  }
  __syncthreads();
  for (int64_t i = first_column<Count>(); i < y.columns; i += column_step<Count>()) {
    float sums[Count] = {};
    for (int j = 0; j < here; ++j) {
      float product[Count];
      load<Count>(products.row(places[j]) + i, product);
#pragma unroll
      for (int c = 0; c < Count; ++c) sums[c] += factors[j] * product[c];
    }
    store<Count>(sums, y.row(row) + i);
  }
}

}  // namespace pecia::kernels::cuda
