// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/core/codes.hpp"
#include "lib/core/tensor_view.hpp"

namespace pecia::kernels {

/// Rows of numbers as codes with scales (lib/core/codes.hpp). In fp8 (E4M3), GPUs alone:
///
///     s         = max(max_i |x[t, i]| / 448, 2⁻¹²⁶)     a NaN is passed over
///     codes[i]  = x[t, i] · (1 / s)                      rounded to nearest even
///
/// An element errs by up to 2⁻⁴ of itself, or, where it is below 2⁻⁶ · s, by up to 2⁻¹⁰ · s. NaN
/// and infinity become NaN; beside an infinity all else becomes zero. In int8, CPUs alone:
///
///     s         = max(max_i |x[t, i]| / 127, 2⁻¹²⁶)
///     codes[i]  = x[t, i] · (1 / s)                      rounded to nearest even
///
/// An element errs by up to s / 2. In int4, CPUs alone, for each group of up to 128:
///
///     least     = min_i x[t, i]
///     step      = max((max_i x[t, i] − least) / 15, 2⁻¹²⁶)
///     codes[i]  = (x[t, i] − least) · (1 / step)         rounded to nearest even, at most 15
///
/// An element errs by up to step / 2. x of int8 and int4 has to be finite. All in fp32, so that
/// every backend gives the same bits. A row of zeros stays zero. Zero rows do nothing.
struct QuantizeRowsArgs {
  TensorView x;       ///< [rows, columns], fp32, bf16 or fp16; rows may be strided
  TensorView codes;   ///< [rows, row_elements] fp8, int8 or int4, written; rows may be strided
  TensorView scales;  ///< [rows, row_scales] fp32, written; [rows] where each has one
  /// [rows, 2] fp32, written: Σ_i (number that is stored − x)² and Σ_i x² of each row, added in an
  /// order that is the same in every call; or absent.
  TensorView square_sums = {};
};

}  // namespace pecia::kernels
