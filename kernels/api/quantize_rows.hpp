#pragma once
#include "lib/core/tensor_view.hpp"

namespace pecia::kernels {

/// Rows of numbers as E4M3 codes, each row with a scale of its own: x[t, i] ≈ codes[t, i] ·
/// scales[t].
///
///     scales[t]   = max(max_i |x[t, i]| / 448, 2⁻¹²⁶)     a NaN is passed over
///     codes[t, i] = x[t, i] · (1 / scales[t])             rounded to nearest even
///
/// All in fp32, so that every backend gives the same bits. An element errs by up to 2⁻⁴ of itself,
/// or, where it is below 2⁻⁶ · scale, by up to 2⁻¹⁰ · scale. A row of zeros has codes of zero. NaN
/// and infinity become NaN; beside an infinity all else becomes zero. Zero rows do nothing.
struct QuantizeRowsArgs {
  TensorView x;       ///< [rows, columns], fp32, bf16 or fp16; rows may be strided
  TensorView codes;   ///< [rows, columns] fp8, written; rows may be strided
  TensorView scales;  ///< [rows] fp32, written
  /// [rows, 2] fp32, written: Σ_i (codes · scale − x)² and Σ_i x² of each row, added in an order
  /// that is the same in every call; or absent.
  TensorView square_sums = {};
};

}  // namespace pecia::kernels
