// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>

#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

/// See RopeTablesArgs. Grid: grid_of_rows of the tables. A thread makes a cosine and a sine at a
/// time.
static __global__ void rope_tables_kernel(const int64_t* positions, const int32_t* sets,
                                          const float* frequencies, const float* factors,
                                          Matrix<float> cos, Matrix<float> sin) {
  const int64_t row = blockIdx.x;
  const auto position = static_cast<float>(positions[row]);
  const float* const own = frequencies + sets[row] * cos.columns;
  const float factor = factors[sets[row]];
  for (int64_t i = first_column<1>(); i < cos.columns; i += column_step<1>()) {
    const double angle = multiply(position, own[i]);
    cos.row(row)[i] = multiply(static_cast<float>(::cos(angle)), factor);
    sin.row(row)[i] = multiply(static_cast<float>(::sin(angle)), factor);
  }
}

}  // namespace pecia::kernels::cuda
