// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The feed-forward of a layer, or its shared expert: down · (activation(gate · x) ∘ up · x), or down · xielu(up · x).

#include "lib/model/layers/products.hpp"
#include "lib/model/weights/tensor_parallel.hpp"

namespace pecia::model {

class GatedFfn {
 public:
  /// All references outlive this object.
  GatedFfn(const ModelConfig& config, const attention::Compute& compute, Products& products,
           TensorParallel& tensor);

  /// Collective over the rank's block: starts adding the result of the block's rows to `hidden`
  /// (TensorParallel::add_product, which also says what `change` is). `rows` is [rows, hidden], as
  /// products take them.
  void run(const GatedFfnWeights& weights, int block, const TensorView& rows,
           const TensorView& hidden, const TensorParallel::Change& change);

  /// activation(gate · x) ∘ up · x, or xielu(up · x), of the rows [rows, hidden], as products take
  /// it: [rows, ffn]. Where there is a gate of rows, its sigmoid multiplies up · x, since down is
  /// linear. Valid until the next call.
  TensorView activate(const GatedFfnWeights& weights, const TensorView& rows);

 private:
  /// xielu(up · x), in `narrow_out` if there is one.
  TensorView curve(const GatedFfnWeights& weights, const TensorView& rows,
                   const TensorView& narrow_out);

  kernels::Activation activation_;
  attention::Compute compute_;
  Products& products_;
  TensorParallel& tensor_;
  device::Buffer gate_, up_, activated_, row_gate_;
};

}  // namespace pecia::model
