// SPDX-License-Identifier: Apache-2.0
#pragma once
/// cos and sin tables of rotary position embedding, for every rope_scaling kind.

#include <cstdint>
#include <span>
#include <vector>

#include "lib/core/tensor_view.hpp"
#include "lib/model/config.hpp"

namespace pecia::model {

/// Frequencies as transformers' modeling_rope_utils computes them, in fp32 (attention factor
/// included in both tables).
class Rotary {
 public:
  explicit Rotary(const ModelConfig& config);

  int64_t rotary_dim() const { return config_.rotary_dim; }

  /// Tables of the rows at global `positions`. The angle is the fp32 product position × frequency,
  /// as the models were trained. `lengths[t]`: the sequence length that dynamic scaling sees for
  /// row t: the whole prompt's for every row of a prompt however it is chunked, position + 1 for a
  /// generated token.
  void tables(std::span<const int64_t> positions, std::span<const int64_t> lengths, TensorView cos,
              TensorView sin) const;  ///< each [rows, rotary_dim/2] fp32, written

  /// Frequencies [rotary_dim/2] for a sequence of `length` tokens.
  std::vector<float> frequencies(int64_t length) const;
  float attention_factor() const { return attention_factor_; }

 private:
  RopeConfig config_;
  std::vector<float> inverse_;  ///< [rotary_dim/2], of the short length
  float attention_factor_ = 1.0f;
};

}  // namespace pecia::model
