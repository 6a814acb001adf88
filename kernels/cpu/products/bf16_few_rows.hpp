// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Matrix products of one thread from few rows of bf16, at the speed of memory. The other matrix is
/// read once, in place. All functions require has_native_bf16().

#include <cstdint>

namespace pecia::kernels::cpu {

/// c[r, o] (+)= factor · Σ_i a[r, i] · b[o, i]
struct DotBf16Args {
  const uint16_t* a;
  int64_t a_stride;
  const uint16_t* b;
  int64_t b_stride;
  float* c;
  int64_t c_stride;
  int64_t rows, columns, depth;
  bool accumulate;
  float factor = 1;
  /// The number of rows of b from the row that is read to the row that is asked for meanwhile. If
  /// it is 0, the next rows are asked for.
  int64_t rows_ahead = 0;
};
void dot_bf16(const DotBf16Args& args);

/// c[r, i] += Σ_j a[r, j] · b[j, i]. If the depth is odd, a[r, depth] is read and must be finite.
struct AddRowsArgs {
  const uint16_t* a;
  int64_t a_stride;
  const uint16_t* b;
  int64_t b_stride;
  float* c;
  int64_t c_stride;
  int64_t rows, columns, depth;
  /// The number of rows of b from the row that is read to the row that is asked for meanwhile.
  int64_t rows_ahead;
};
void add_rows_bf16(const AddRowsArgs& args);

}  // namespace pecia::kernels::cpu
