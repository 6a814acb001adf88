// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Products of rows of bf16 with rows of int8 or int4 codes (lib/core/codes.hpp), by AVX512-BF16.
/// Codes of int8 are numbers of bf16. A group of int4 has 16 numbers, which are rounded to bf16.
/// All functions use one thread and require has_native_bf16().

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

/// c[r, o] (+)= Σ_i a[r, i] · b[o, i], for few rows. Nothing is packed, and b is read once.
struct DotCodesArgs {
  const uint16_t* a;
  int64_t a_stride;
  CodeRows b;
  float* c;
  int64_t c_stride;
  int64_t rows, columns, depth;
  bool accumulate;
};
void dot_codes(const DotCodesArgs& args);

/// Writes numbers [begin, begin + count) of `rows` rows, rounded to bf16. `begin` is a multiple of
/// int4_group. `to_stride` is a multiple of bf16_lanes with room for the count. Up to it, zeros or
/// numbers past the count are written.
void codes_to_bf16(const CodeRows& from, int64_t rows, int64_t begin, int64_t count, uint16_t* to,
                   int64_t to_stride);

}  // namespace pecia::kernels::cpu
