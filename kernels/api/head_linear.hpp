// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/api/linear.hpp"

namespace pecia::kernels {

/// Multiplies each head by a matrix of its own.
///
///     y[t, h, o] = Σ_i x[t, h, i] · weight[h, o, i]
///
/// Products and sums are those of `linear`, one head after the other. Zero rows do nothing.
struct HeadLinearArgs {
  int64_t heads;  ///< at least 1
  /// [rows, in] of head 0, as LinearArgs::x. Head h begins h · x_step elements later; with a step of
  /// 0 all heads have the same x.
  TensorView x;
  int64_t x_step;
  TensorView weight;  ///< [heads · out, in]: fp32, bf16 or fp16; rows may be strided
  /// [rows, out] of head 0, as LinearArgs::y, written. Head h begins h · y_step elements later. Heads
  /// do not overlap.
  TensorView y;
  int64_t y_step;
  RowInvariant row_invariant = RowInvariant::no;
  /// Yes: the last product on this backend had the x of head 0, and nothing has written to it since.
  SameX same_x = SameX::no;

  int64_t in() const { return x.size(1); }
  int64_t out() const { return y.size(1); }
};

/// The product of one head.
LinearArgs linear_of_head(const HeadLinearArgs& args, int64_t head);

}  // namespace pecia::kernels
