// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How much rows need tokens of other ranks: the share of a row's attention that goes beyond what it
/// sees at home, of the query head where it is largest. It is known at home without a message, from
/// log-sums of attention with and without these tokens. A layer's rows are chosen by the layer
/// before. Rows that were dropped there keep what was last known of them, and it grows from layer to
/// layer, so that they are not the same ones in all layers.
///
/// Beyond the paper (CSPS), which chooses tokens by the attention that they receive. What a row's own
/// query needs is another matter.

#include <span>
#include <vector>

#include "lib/model/attention/attention_steps.hpp"

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
  /// Log-sums [groups, heads of a group] of attention to further tokens that are always seen, and
  /// the groups that they belong to: row · KV heads + KV head.
  void attended_always(const TensorView& lse, std::span<const int64_t> groups);
  /// Log-sums [rows, heads] of all attention. `rows` are those that were dropped nowhere. The host
  /// waits for the sums.
  void learn(const TensorView& lse, std::span<const int64_t> rows);

  bool known() const { return known_; }
  /// By row, at least 0: the share, or what it has grown to. No number is NaN. Who knows of other
  /// ranks' heads may raise them.
  std::span<const float> of_rows() const { return need_; }
  std::span<float> of_rows() { return need_; }

 private:
  void read(const TensorView& lse, device::Buffer& into) const;

  Compute compute_;
  bool known_ = false;
  std::vector<float> need_;
  std::vector<int64_t> groups_;  ///< of `always_`
  int64_t group_heads_ = 1;
  device::Buffer here_, always_, all_;  ///< log-sums
};

}  // namespace pecia::attention
