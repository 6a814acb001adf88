// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How much rows need tokens of other ranks: the share of a row's attention that goes beyond what it
/// sees at home, of the query head where it is largest. It is known at home without a message, from
/// log-sums of attention with and without these tokens. A layer's rows are chosen by the layer
/// before. Rows that were dropped there keep what was last known of them, and it grows from layer to
/// layer, so that they are not the same ones in all layers. All of it stays in the device's memory.
///
/// Beyond the paper (CSPS), which chooses tokens by the attention that they receive. What a row's own
/// query needs is another matter.

#include <span>

#include "lib/model/attention/compute.hpp"

namespace pecia::attention {

class RowNeed {
 public:
  /// `compute` must outlive this object.
  explicit RowNeed(const Compute& compute);

  /// What is known of a dropped row is multiplied by this in each layer.
  static constexpr float growth = 1.1f;

  /// Begins a pass. Nothing is known then.
  void begin_pass(int64_t rows);

  // For each layer, in this order.
  /// Log-sums [rows, heads] of attention to the rank's own tokens.
  void attended_here(const TensorView& lse);
  /// Log-sums [rows, heads] of all attention, those of attention to further tokens that are always
  /// seen, and all rows in lists, of which those that were dropped nowhere come first.
  void learn(const TensorView& lse, std::span<const kernels::PickedParts> always,
             std::span<const kernels::LearntRows> rows);

  bool known() const { return known_; }
  /// [rows] fp32, at least 0: the share, or what it has grown to. No number is NaN. Who knows of
  /// other ranks' heads may raise them.
  TensorView of_rows() const { return {static_cast<void*>(need_.data()), DType::fp32, {rows_}}; }

 private:
  Compute compute_;
  bool known_ = false;
  int64_t rows_ = 0;
  device::Buffer need_, here_;
};

}  // namespace pecia::attention
