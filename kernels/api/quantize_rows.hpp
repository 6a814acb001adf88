// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/base/core/codes.hpp"
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// Turns rows of numbers into codes with scales (lib/base/core/codes.hpp). Only GPUs have fp8 (E4M3):
///
///     s         = max(max_i |x[t, i]| / 448, 2⁻¹²⁶)     a NaN is passed over
///     codes[i]  = x[t, i] · (1 / s)                      rounded to nearest even
///
/// An element errs by up to 2⁻⁴ of itself, or, if it is below 2⁻⁶ · s, by up to 2⁻¹⁰ · s. NaN and
/// infinity become NaN. Beside an infinity all other elements become zero. Only CPUs have int8:
///
///     s         = max(max_i |x[t, i]| / 127, 2⁻¹²⁶)
///     codes[i]  = x[t, i] · (1 / s)                      rounded to nearest even
///
/// An element errs by up to s / 2. Only CPUs have int4, in which each group has up to 128 numbers:
///
///     least     = min_i x[t, i]
///     step      = max((max_i x[t, i] − least) / 15, 2⁻¹²⁶)
///     codes[i]  = (x[t, i] − least) · (1 / step)         rounded to nearest even, at most 15
///
/// An element errs by up to step / 2. For int8 and int4, x must be finite. All arithmetic is fp32,
/// so that every backend gives the same bits. A row of zeros stays zero. Zero rows do nothing.
struct QuantizeRowsArgs {
  TensorView x;       ///< [rows, columns], fp32, bf16 or fp16; rows may be strided
  TensorView codes;   ///< [rows, row_elements] fp8, int8 or int4, written; rows may be strided
  TensorView scales;  ///< [rows, row_scales] fp32, written; [rows] if each row has one
  /// [rows, 2] fp32, written, or absent. Each row has Σ_i (stored number − x)² and Σ_i x². They are
  /// added in an order that is the same in every call.
  TensorView square_sums = {};
};

}  // namespace pecia::kernels
