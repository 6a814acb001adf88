// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The frequencies of rotary position embedding, for every rope_scaling kind.

#include <cstdint>
#include <span>
#include <vector>

#include "lib/model/config/config.hpp"

namespace pecia::model {

/// The frequencies by which some rows turn, as kernels::RopeTablesArgs takes them.
struct RowFrequencies {
  std::vector<int32_t> sets;       ///< [rows]
  std::vector<float> frequencies;  ///< [number of sets, rotary_dim / 2]
  std::vector<float> factors;      ///< [number of sets]: of cos and sin
};

/// Computes frequencies as transformers' modeling_rope_utils does, in fp32.
class Rotary {
 public:
  explicit Rotary(RopeConfig config);

  int64_t rotary_dim() const { return config_.rotary_dim; }

  /// Frequencies [rotary_dim/2] for a sequence of `length` tokens.
  std::vector<float> frequencies(int64_t length) const;
  /// The same for rows whose sequences have these lengths (rope_length): each set once.
  RowFrequencies frequencies_of(std::span<const int64_t> lengths) const;
  /// Whether queries have factors of their own, by RopeConfig::temperature_beta.
  bool scales_queries() const { return config_.temperature_beta > 0; }
  /// The frequencies of queries at global `positions`, if scales_queries().
  RowFrequencies frequencies_of_queries(std::span<const int64_t> positions) const;
  /// What multiplies them, as the factors of one pair that does not turn.
  RowFrequencies growth_of_queries(std::span<const int64_t> positions) const;
  /// Factor of cos and sin.
  float attention_factor() const { return attention_factor_; }

 private:
  int64_t counted_length(int64_t length) const;
  RowFrequencies sets_of_queries(std::span<const int64_t> positions,
                                 std::span<const float> frequencies, float factor) const;

  RopeConfig config_;
  std::vector<float> inverse_;  ///< [rotary_dim/2], frequencies of the short length
  float attention_factor_ = 1.0f;
};

/// What multiplies queries at global `positions`, as the factors of one pair that does not turn.
RowFrequencies growth_of(const QueryTemperature& temperature, std::span<const int64_t> positions);

/// The sequence length by which the row at `position` is rotated. With dynamic scaling every row of
/// a prompt has the length of the whole prompt, however it is chunked, and a generated token has
/// position + 1. With longrope all rows of a request have the most positions that it may come to,
/// since keys that were rotated by short factors do not go with queries by long ones.
int64_t rope_length(RopeScaling scaling, int64_t position, int64_t prompt_end, int64_t longest);

}  // namespace pecia::model
