// SPDX-License-Identifier: Apache-2.0
#pragma once
/// cos and sin tables of rotary position embedding, for every rope_scaling kind.

#include <cstdint>
#include <span>
#include <vector>

#include "lib/core/tensor_view.hpp"
#include "lib/model/config.hpp"

namespace pecia::model {

/// Computes frequencies as transformers' modeling_rope_utils does, in fp32. Both tables include the
/// attention factor.
class Rotary {
 public:
  explicit Rotary(const ModelConfig& config);

  int64_t rotary_dim() const { return config_.rotary_dim; }

  /// Tables of the rows at global `positions`. The angle is the fp32 product position × frequency,
  /// as the models were trained. `lengths[t]` is the sequence length that dynamic scaling uses for
  /// row t. For every row of a prompt it is the length of the whole prompt, however it is chunked;
  /// for a generated token it is position + 1.
  void tables(std::span<const int64_t> positions, std::span<const int64_t> lengths, TensorView cos,
              TensorView sin) const;  ///< each [rows, rotary_dim/2] fp32, overwritten

  /// Frequencies [rotary_dim/2] for a sequence of `length` tokens.
  std::vector<float> frequencies(int64_t length) const;
  float attention_factor() const { return attention_factor_; }

 private:
  RopeConfig config_;
  std::vector<float> inverse_;  ///< [rotary_dim/2], frequencies of the short length
  float attention_factor_ = 1.0f;
};

}  // namespace pecia::model
