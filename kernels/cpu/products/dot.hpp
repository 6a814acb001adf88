// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Products of few rows with many rows. Memory is read once, in its stored type, and nothing is
/// packed.

#include <cstdint>

#include "lib/base/core/dtype.hpp"

namespace pecia::kernels::cpu {

/// c[r, o] (+)= Σ_i a[r, i] · b[o, i], with sums in fp32. b is fp32, bf16, fp16 or fp8. It uses one
/// thread.
struct DotArgs {
  const float* a;
  int64_t a_stride;
  const void* b;
  DType b_dtype;
  int64_t b_stride;
  float* c;
  int64_t c_stride;
  int64_t rows, columns, depth;
  bool accumulate;
};
void dot_rows(const DotArgs& args);

}  // namespace pecia::kernels::cpu
