// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A mixer whose heads have queries, keys and values.

#include <optional>

#include "lib/model/layers/kept_rows.hpp"
#include "lib/model/layers/mixer.hpp"
#include "lib/model/layers/products.hpp"

namespace pecia::model {

class AttentionMixer : public Mixer {
 public:
  /// All references outlive this object.
  AttentionMixer(const ModelConfig& config, const attention::Compute& compute, Products& products,
                 TensorParallel& tensor);

  void begin(int64_t layer, const LayerWeights& weights, int64_t num_rows,
             attention::Attention& attention) override;
  void project(int block, const Input& input, attention::Attention& attention) override;
  void mix(int64_t layer, attention::Attention& attention) override;
  void mix_block(int64_t layer, int block, attention::Attention& attention) override;
  void keep(std::span<const parallel::RowRange> places) override;
  /// Gates what the heads gave if the layer has a gate.
  void project_output(int block, const TensorView& hidden,
                      const TensorParallel::Change& change) override;

 private:
  TensorView multiply(int block, const Input& input, const char* name, const LinearWeight& weight,
                      const TensorView& all, kernels::SameX same_x);
  TensorView heads_in(device::Buffer& buffer, DType type, int64_t rows,
                      const LinearWeight& weight) const;
  void make_heads(int64_t rows);
  void project_values(int block, const Input& input, const TensorView& k);
  void project_fresh(const Input& input);
  /// The type of queries that these tables have rotated, or that are not rotated.
  DType rotated_type(const RotationTables& tables) const {
    return tables.cos ? query_type_ : DType::fp32;
  }
  void project_gate(int block, const Input& input);
  void start_squares(const TensorView& q, const TensorView& k);
  /// Norms the heads, and rotates them into `to`, which may be the heads.
  void finish(const TensorView& heads, const TensorView& norm_weight, const TensorView& squares,
              const RotationTables& tables, const TensorView& to);

  const ModelConfig& config_;
  attention::Compute compute_;
  Products& products_;
  TensorParallel& tensor_;
  device::Buffer q_buffer_, k_buffer_, v_buffer_, all_buffer_, mixed_buffer_, squares_buffer_,
      gate_buffer_;
  device::Buffer rotated_buffer_;
  KeptRows kept_;

  // State of the current layer.
  const AttentionWeights* weights_ = nullptr;
  int64_t head_dim_ = 0;
  /// [rows, heads, head_dim] fp32; not of fresh heads. A layer that attends another's keys has no k
  /// and v.
  TensorView q_, k_, v_;
  DType query_type_ = DType::fp32;  ///< of queries that are rotated
  TensorView queries_;  ///< like q_; what is attended: q_, or its rotation in query_type_
  TensorView mixed_;    ///< like q_; of the type of products if attention rounds to it
  TensorView gate_;     ///< like q_; what the sigmoid is of; absent if the layer has no gate
  /// Heads as the products give them; absent if norms and rotations are ops of their own.
  std::optional<kernels::RotateAndStoreArgs> fresh_;
  /// Sums of squares of all heads of the model, [rows of the block, heads], if these are normed
  /// together.
  TensorView q_squares_, k_squares_;
  TensorView q_norm_, k_norm_;  ///< weights of the heads that are here
};

}  // namespace pecia::model
