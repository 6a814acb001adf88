// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The feed-forward of a layer with experts: each row takes the experts that the router gives it the
/// highest logits for.
///
///     Σ_e w_e · down_e · (activation(gate_e · x) ∘ up_e · x)          w = weights by kernels::route

#include "lib/model/products.hpp"
#include "lib/model/tensor_parallel.hpp"

namespace pecia::model {

class Mixture {
 public:
  /// All references outlive this object.
  Mixture(const ModelConfig& config, const context::Compute& compute, Products& products,
          TensorParallel& tensor);

  /// Collective over the rank's block: starts adding the result of the block's rows to `hidden`
  /// (TensorParallel::add_product, which also says what `change` is). `rows` is [rows, hidden], as
  /// products take them. Every rank has a part of each expert and chooses by the whole router, so
  /// ranks with the same rows choose the same experts.
  void run(const MixtureWeights& weights, int block, const TensorView& rows,
           const TensorView& hidden, const TensorParallel::Change& change);

 private:
  void choose(const LinearWeight& router, const TensorView& rows);

  const ModelConfig& config_;
  context::Compute compute_;
  Products& products_;
  TensorParallel& tensor_;
  device::Buffer logits_, chosen_, weights_;
  TensorView chosen_of_rows_, weights_of_rows_;
};

}  // namespace pecia::model
