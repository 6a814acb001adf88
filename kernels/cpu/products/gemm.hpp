// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Matrix products of one thread in fp32, from tiles that fit the caches. Linear and attention are
/// made of them. We have our own kernel rather than BLAS for three reasons. Weights are widened
/// while they are packed. The stream can be polled between any two tiles. A result's bits depend
/// neither on the number of rows it is computed with nor on the thread count, because every element
/// is one chain of fused multiply-adds in order of depth.

#include <cstdint>

#include "lib/base/core/dtype.hpp"

namespace pecia::kernels::cpu {

/// Returns the columns of a panel of the right-hand side. They are two vectors.
int64_t panel_columns();

/// Returns `columns` rounded up to whole panels.
inline int64_t padded_columns(int64_t columns) {
  return (columns + panel_columns() - 1) / panel_columns() * panel_columns();
}

/// Packs rows [columns, depth] of fp32, bf16, fp16 or fp8. They are transposed, widened and cut
/// into panels:
///
///     packed[p, i, c] = rows[p · panel_columns + c, i]      0 past the last column
struct PackArgs {
  const void* rows;
  DType dtype;
  int64_t row_stride;  ///< elements
  int64_t columns;
  int64_t depth;
  float* packed;  ///< [padded_columns(columns) · depth]
};
void pack_transposed(const PackArgs& args);

/// Widens `num_rows` rows of `width` elements to fp32. Each row is padded with zeros to
/// `to_stride`.
void widen_rows(const void* rows, DType dtype, int64_t row_stride, int64_t num_rows, int64_t width,
                float* to, int64_t to_stride);

/// c[r, o] (+)= Σ_i a[r, i] · b[i, o]. Panel p of b begins at p · b_panel_stride. It holds a row of
/// panel_columns elements for each i, and these rows are b_row_stride apart.
struct GemmArgs {
  const float* a;
  int64_t a_stride;
  const float* b;
  int64_t b_row_stride, b_panel_stride;
  float* c;
  int64_t c_stride;
  int64_t rows, columns, depth;
  bool accumulate;
};
void gemm(const GemmArgs& args);

}  // namespace pecia::kernels::cpu
