// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Matrix products of one thread from few rows of bf16, at the speed of memory. The other matrix is
/// read once, in place. The bits are those of pack_bf16 and gemm_bf16, since every sum is the same
/// chain in order of depth. All functions require has_native_bf16().

#include <cstdint>

namespace pecia::kernels::cpu {

/// c[r, o] (+)= Σ_i a[r, i] · b[o, i]. If the depth is odd, a[r, depth] is read and must be finite.
struct DotBf16Args {
  const uint16_t* a;
  int64_t a_stride;
  const uint16_t* b;
  int64_t b_stride;
  float* c;
  int64_t c_stride;
  int64_t rows, columns, depth;
  bool accumulate;
  /// Prefetch distance in b, in elements; the prefetched element need not exist. 0: the columns are
  /// read once, one after the other, which the hardware prefetches.
  int64_t ahead = 0;
};
void dot_bf16(const DotBf16Args& args);

/// The same product, from panels that pack_bf16 or pack_bf16_tiles made before.
struct DotPanelsArgs {
  const uint16_t* a;
  int64_t a_stride;
  const uint16_t* b;  ///< of the first column, which begins a panel, and of the first pair
  int64_t b_stride;   ///< elements of depth that a panel has, padding included
  float* c;
  int64_t c_stride;
  int64_t rows, columns, depth;
  bool accumulate;
  int splits = 1;  ///< as GemmBf16Args has them
};
void dot_panels(const DotPanelsArgs& args);

/// c[r, i] += Σ_j a[r, j] · b[j, i]. If the depth is odd, a[r, depth] is read and must be finite.
struct AddRowsArgs {
  const uint16_t* a;
  int64_t a_stride;
  const uint16_t* b;
  int64_t b_stride;
  float* c;
  int64_t c_stride;
  int64_t rows, columns, depth;
  int64_t ahead;  ///< as in DotBf16Args
};
void add_rows_bf16(const AddRowsArgs& args);

}  // namespace pecia::kernels::cpu
