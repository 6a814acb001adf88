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
  explicit Rotary(RopeConfig config);

  int64_t rotary_dim() const { return config_.rotary_dim; }

  /// Tables of the rows at global `positions`. The angle is the fp32 product position × frequency,
  /// as the models were trained. `lengths[t]` is the sequence length that dynamic scaling and
  /// longrope use for row t (rope_length).
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

/// The sequence length by which the row at `position` is rotated. With dynamic scaling every row of
/// a prompt has the length of the whole prompt, however it is chunked, and a generated token has
/// position + 1. With longrope all rows of a request have the most positions that it may come to,
/// since keys that were rotated by short factors do not go with queries by long ones.
int64_t rope_length(RopeScaling scaling, int64_t position, int64_t prompt_end, int64_t longest);

}  // namespace pecia::model
