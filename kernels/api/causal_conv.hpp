// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "kernels/api/state_rows.hpp"
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// Taps that a convolution may have.
inline constexpr int64_t least_conv_taps = 2, most_conv_taps = 8;

/// Convolves each channel over the rows of its sequence, and activates it:
///
///     out[t, c] = silu(bias[c] + Σ_j weight[c, j] · x[t − taps + 1 + j, c])     j = 0 … taps − 1
///
/// Rows before an item's first row are in its tail, the oldest first. Afterwards the tail has the
/// last taps − 1 rows of the sequence, so an item of fewer rows keeps a part of it. A tail of zeros
/// begins a sequence. Rows of no item stay unwritten.
///
/// A row's bits depend on itself and the taps − 1 rows before it alone: passes of any lengths give
/// the same bits. NaN goes on to the rows that see it. Zero rows do nothing.
struct CausalConvArgs {
  TensorView x;       ///< [rows, channels] fp32
  TensorView weight;  ///< [channels, taps] fp32, dense
  TensorView bias;    ///< [channels] fp32, or absent: zero
  std::span<const StateRows> items;
  /// [tails · (taps − 1), channels] fp32, read and written. It may be a range of the columns of a
  /// wider tensor, as may x and out.
  TensorView tails;
  TensorView out;  ///< [rows, channels] fp32, written, in other memory than x

  /// Rows of a tail.
  int64_t kept_rows() const { return weight.size(1) - 1; }
};

}  // namespace pecia::kernels
