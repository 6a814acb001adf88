// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The mixer of a layer: q, k and v of the rows, attention to all keys of their sequences, and the
/// projection of what it gives.

#include "lib/context/attention.hpp"
#include "lib/model/products.hpp"
#include "lib/model/tensor_parallel.hpp"

namespace pecia::model {

class AttentionMixer {
 public:
  /// All references outlive this object.
  AttentionMixer(const ModelConfig& config, const context::Compute& compute, Products& products,
                 TensorParallel& tensor);

  /// Rows of one block as the mixer reads them.
  struct Input {
    TensorView rows;      ///< [rows, hidden], normed, in Products::operand_type
    TensorView cos, sin;  ///< [rows, rotary_dim / 2]
  };

  /// The calls of a layer, in this order: begin; project of every block; mix; project_output of
  /// every block. `num_rows`: of all blocks. Collective over the replica.
  void begin(const AttentionWeights& weights, int64_t num_rows);
  void project(int block, const Input& input, context::Attention& attention);
  void mix(int64_t layer, context::Attention& attention);
  /// Starts adding the block's rows of the output to `hidden` (TensorParallel::add_product).
  void project_output(int block, const TensorView& hidden);

 private:
  const ModelConfig& config_;
  context::Compute compute_;
  Products& products_;
  TensorParallel& tensor_;
  device::Buffer q_buffer_, k_buffer_, v_buffer_, mixed_buffer_;

  // The layer.
  const AttentionWeights* weights_ = nullptr;
  TensorView q_, k_, v_, mixed_;  ///< [rows, heads, head_dim] fp32
};

}  // namespace pecia::model
