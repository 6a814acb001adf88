// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a layer computes on its rows alone: products with weights and norms, each a span of the
/// trace.

#include <span>
#include <vector>

#include "lib/context/compute.hpp"
#include "lib/model/linear_weight.hpp"
#include "lib/model/weights.hpp"

namespace pecia::model {

class Products {
 public:
  /// All references outlive this object. `ranks`: that a layer's weights are cut over at most.
  Products(const ModelConfig& config, const WeightViews& weights, const context::Compute& compute,
           kernels::RowInvariant row_invariant, int ranks);

  /// y [rows, out] = x [rows, in] · weightᵀ + bias, added to y where `accumulate` says so. y fp32.
  /// `splits`: LinearArgs::splits.
  void linear(const char* name, const TensorView& x, const LinearWeight& weight,
              const TensorView& y, kernels::Accumulate accumulate = kernels::Accumulate::no,
              int splits = 1);

  /// LinearArgs::splits of a product whose parts are added, o or down, of one of `parts` ranks.
  int splits_of_part(int parts) const { return share_of_splits(splits_, parts); }

  /// RMS norm of the rows. `marks` and `mark`: see kernels::RmsNormArgs.
  void norm(const TensorView& x, const TensorView& weight, const TensorView& out,
            const TensorView& marks = {}, int32_t mark = 0);

  /// Of what is multiplied by the layers' weights: fp32 where these are of several types.
  DType operand_type() const { return operand_; }

 private:
  void sum_columns(const TensorView& x, std::span<const LinearWeight::Part> parts, int splits,
                   size_t depth, const TensorView& y);
  static int share_of_splits(int whole, int parts) { return std::max(1, whole / parts); }

  context::Compute compute_;
  kernels::RowInvariant row_invariant_;
  int splits_;  ///< of o and down whole; 1: their sums may have any order
  float norm_eps_;
  DType operand_;
  std::vector<device::Buffer> part_sums_;  ///< by depth
};

}  // namespace pecia::model
