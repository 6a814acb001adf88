// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/api/recurrence_gates.hpp"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

/// See RecurrenceGatesArgs. `b` may have no data. Grid: grid_of_rows of a.
static __global__ void recurrence_gates_kernel(Matrix<const float> a, Matrix<const float> b,
                                               const float* rate, const float* bias,
                                               float least_step, float most_step,
                                               Matrix<float> decay, Matrix<float> strength) {
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const int64_t row = blockIdx.x;
  for (int64_t i = first_column<1>(); i < a.columns; i += column_step<1>()) {
    const float x = a.row(row)[i] + bias[i];
    float step = x > softplus_limit ? x : log1pf(expf(x));
    if (step < least_step) step = least_step;  // compared so that NaN stays
    if (step > most_step) step = most_step;
    decay.row(row)[i] = rate[i] * step;
    strength.row(row)[i] = b.data != nullptr ? 1.0f / (1.0f + expf(-b.row(row)[i])) : step;
  }
}

}  // namespace pecia::kernels::cuda
