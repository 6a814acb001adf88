// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Matrix products of one thread from operands of bf16, by the CPU's own instruction
/// (VDPBF16PS of AVX512-BF16 at twice the rate of fp32, BFMMLA of Arm at four times). Sums are fp32. Numbers below 2^-126 count as zero. All functions
/// require has_native_bf16().

#include <cstdint>

namespace pecia::kernels::cpu {

/// Columns of a panel of the right-hand side: two vectors of sums.
constexpr int64_t bf16_panel = 32;

/// Parts of the depth whose sums gemm_bf16 adds in pairs.
constexpr int most_splits = 8;

/// Packs rows [columns, depth]. They are transposed and cut into panels in which a column's
/// neighbours in depth lie side by side:
///
///     packed[p, i/2, c, i%2] = rows[p · bf16_panel + c, i]      0 past the last column and depth
struct PackBf16Args {
  const uint16_t* rows;
  int64_t row_stride;  ///< elements
  int64_t columns;
  int64_t depth;
  uint16_t* packed;  ///< [columns in whole panels · depth rounded up to even]
  /// How many elements after an element of the rows that is read another one is asked for, so that
  /// it is in the second cache when it is read. It need not exist.
  int64_t ahead = 0;
};
void pack_bf16(const PackBf16Args& args);

/// Does the same, and pads the depth of each panel with zeros to a multiple of 32, as tiles take it.
void pack_bf16_tiles(const PackBf16Args& args);

/// Rows that are read after a product. They are asked for while it is made, line after line, so that
/// memory works meanwhile. They need not exist.
struct ComingRows {
  const void* first = nullptr;
  int64_t stride_bytes = 0, row_bytes = 0, rows = 0;
};

/// c[r, o] (+)= Σ_i a[r, i] · b[i, o]. pack_bf16 makes b. If the depth is odd, a[r, depth] is read and
/// must be finite. In splits, the sums of equal parts of the depth are added in pairs
/// (LinearArgs::splits), and then to c.
struct GemmBf16Args {
  const uint16_t* a;
  int64_t a_stride;
  const uint16_t* b;
  float* c;
  int64_t c_stride;
  int64_t rows, columns, depth;
  bool accumulate;
  ComingRows coming = {};
  /// Elements of depth, padding included, that a panel of b has, where these are more than the
  /// product's. The product takes the first ones.
  int64_t panel_depth = 0;
  int splits = 1;  ///< a power of two, most_splits at most; each has whole pairs of the depth

  /// Elements from one column of b to the next, for panels packed in units of `unit`.
  int64_t column_stride(int64_t unit) const {
    return panel_depth > 0 ? panel_depth : (depth + unit - 1) / unit * unit;
  }
};
void gemm_bf16(const GemmBf16Args& args);

}  // namespace pecia::kernels::cpu
