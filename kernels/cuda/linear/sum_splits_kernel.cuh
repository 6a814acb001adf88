// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/api/linear.hpp"
#include "kernels/cuda/shared/instructions.cuh"
#include "kernels/cuda/shared/matrix.hpp"

namespace pecia::kernels::cuda {

/// y (+)= the sum of `splits` partial sums, [splits · rows, columns]. `splits` is a power of two.
/// The partial sums are added as the leaves of a complete binary tree. Grid: grid_of_rows of y.
static __global__ void sum_splits_kernel(Matrix<const float> partials, int splits,
                                         Accumulate accumulate, Matrix<float> y) {
  const int64_t row = blockIdx.x;
  for (int64_t column = int64_t{blockIdx.y} * blockDim.x + threadIdx.x; column < y.columns;
       column += int64_t{gridDim.y} * blockDim.x) {
    float waiting[32], sum = 0;  // waiting has left halves of ever smaller subtrees
    int depth = 0;
    for (int split = 0; split < splits; ++split) {
      sum = partials.row(split * y.rows + row)[column];
      for (int bit = 1; (split & bit) != 0; bit *= 2) sum = waiting[--depth] + sum;
      waiting[depth++] = sum;
    }
    float* const to = y.row(row) + column;
    *to = accumulate == Accumulate::yes ? *to + sum : sum;
  }
}

}  // namespace pecia::kernels::cuda
