// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The feed-forward of a layer: down · (silu(gate · x) ∘ up · x).

#include "lib/model/products.hpp"
#include "lib/model/tensor_parallel.hpp"

namespace pecia::model {

class GatedFfn {
 public:
  /// All references outlive this object.
  GatedFfn(const context::Compute& compute, Products& products, TensorParallel& tensor);

  /// Collective over the rank's block: starts adding the result of the block's rows to `hidden`
  /// (TensorParallel::add_product). `rows` is [rows, hidden], normed, in Products::operand_type.
  void run(const GatedFfnWeights& weights, int block, const TensorView& rows,
           const TensorView& hidden);

 private:
  context::Compute compute_;
  Products& products_;
  TensorParallel& tensor_;
  device::Buffer gate_, up_, activated_;
};

}  // namespace pecia::model
