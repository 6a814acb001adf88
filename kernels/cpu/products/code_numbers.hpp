// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Turns int8 and int4 codes (lib/core/codes.hpp) into bf16, as products take them. It uses one
/// thread and requires has_native_bf16().

#include <cstdint>

#include "lib/core/dtype.hpp"

namespace pecia::kernels::cpu {

struct CodeRows {
  const void* data;
  DType dtype;         ///< int8 or int4
  int64_t row_stride;  ///< elements
  const float* scales;
  int64_t scale_stride;

  CodeRows from(int64_t row) const {
    return {static_cast<const char*>(data) + row * row_stride * size_of(dtype), dtype, row_stride,
            scales + row * scale_stride, scale_stride};
  }
};

/// Writes numbers [begin, begin + count) of `rows` rows, rounded to bf16. `begin` is a multiple of
/// int4_group. `to_stride` is a multiple of bf16_lanes with room for the count. Up to it, zeros or
/// numbers past the count are written.
void codes_to_bf16(const CodeRows& from, int64_t rows, int64_t begin, int64_t count, uint16_t* to,
                   int64_t to_stride);

}  // namespace pecia::kernels::cpu
