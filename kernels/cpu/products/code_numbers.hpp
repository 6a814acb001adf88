// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Turns int8, int4, mxfp4 and nvfp4 codes (lib/base/core/codes.hpp) into bf16, as products take them. It uses
/// one thread and requires has_native_bf16().

#include <cstdint>

#include "kernels/cpu/products/bf16_native.hpp"
#include "lib/base/core/codes.hpp"

namespace pecia::kernels::cpu {

struct CodeRows {
  const void* data;
  DType dtype;         ///< int8, int4, mxfp4 or nvfp4
  int64_t row_stride;  ///< elements
  const void* scales;
  int64_t scale_stride;            ///< bytes
  int64_t shared_by = int4_group;  ///< numbers of int4 that share step and least
  float factor = 1;                ///< of nvfp4

  CodeRows from(int64_t row) const {
    CodeRows rows = *this;
    rows.data = static_cast<const char*>(data) + row * row_stride * size_of(dtype);
    rows.scales = static_cast<const char*>(scales) + row * scale_stride;
    return rows;
  }
  const float* factors() const { return static_cast<const float*>(scales); }
};

/// How many bytes to ask ahead by (bytes_ahead) if `numbers` of each row are read, row after row.
int64_t bytes_ahead_of(const CodeRows& rows, int64_t numbers);

/// The 16 numbers of a block of mxfp4, in bf16, twice over, for each scale.
using Mxfp4Numbers = uint16_t[32];
const Mxfp4Numbers* mxfp4_numbers();

/// The 16 numbers of a block of nvfp4, in bf16, for each scale.
using Nvfp4Numbers = uint16_t[16];
const Nvfp4Numbers* nvfp4_numbers();

/// One row of each form, by the vectors of this architecture. `count` numbers are written, up to the
/// next multiple of bf16_lanes. While codes are read, codes `ahead` bytes later are asked for.
struct CodesToBf16 {
  int64_t count, ahead;
  uint16_t* to;

  void of_int8(const int8_t* codes, float scale) const;
  /// `scales`: step and least of each `shared_by` numbers.
  void of_int4(const void* groups, const float* scales, int64_t shared_by) const;
  void of_mxfp4(const uint8_t* blocks, const uint8_t* scales) const;
  void of_nvfp4(const uint8_t* blocks, const uint8_t* scales, float factor) const;
};

/// Writes numbers [begin, begin + count) of `rows` rows, rounded to bf16. `begin` is a multiple of
/// numbers_of(dtype). `to_stride` is a multiple of bf16_lanes with room for the count. Up to it, zeros or
/// numbers past the count are written.
void codes_to_bf16(const CodeRows& from, int64_t rows, int64_t begin, int64_t count, uint16_t* to,
                   int64_t to_stride);

}  // namespace pecia::kernels::cpu
