// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Matrix products of one thread from few rows of bf16, at the speed of memory. A sum is spread over
/// the lanes of a vector, which are added at last. This needs no transposition, so it is faster than
/// dot_bf16 for one or two rows, for keys, and for codes. But its bits are others. All functions require
/// has_native_bf16().

#include "kernels/cpu/products/bf16_few_rows.hpp"
#include "kernels/cpu/products/code_numbers.hpp"

namespace pecia::kernels::cpu {

/// Computes what dot_bf16 does.
void lane_dot_bf16(const DotBf16Args& args);

/// c[r, o] (+)= Σ_i a[r, i] · b[o, i]. Codes of int8 are numbers of bf16, and the scale multiplies
/// the sum. A group of int4 has 16 numbers, which are rounded to bf16. Numbers of mxfp4 are those of
/// bf16, and so are the bits of the sums. Numbers of nvfp4 are, too, and the matrix's factor multiplies
/// the sum.
struct DotCodesArgs {
  const uint16_t* a;
  int64_t a_stride;
  CodeRows b;
  float* c;
  int64_t c_stride;
  int64_t rows, columns, depth;
  bool accumulate;
};
void lane_dot_codes(const DotCodesArgs& args);

}  // namespace pecia::kernels::cpu
