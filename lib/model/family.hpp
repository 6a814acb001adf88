// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a family is (families/ has one file for each).

#include <span>
#include <string_view>
#include <vector>

#include "lib/model/config.hpp"
#include "lib/model/weight_names.hpp"

namespace pecia::model {

/// Which layers may have a sliding window.
enum class WindowRule {
  never,
  every_layer,  ///< sliding_window, if present, holds for all layers
  by_layer      ///< by use_sliding_window and layer_types, or from layer max_window_layers on
};

struct FamilyTraits {
  Family family;
  std::string_view model_type;
  std::vector<std::string_view> architectures;

  int64_t head_dim;  ///< 0: hidden_size / num_attention_heads
  double rms_norm_eps;
  double partial_rotary_factor;
  std::vector<int32_t> eos_token_ids;

  std::string_view bias_key;   ///< key that enables biases on q, k and v; empty: not configurable
  bool bias_default;           ///< value when the key is absent
  bool bias_on_output;         ///< the key also enables a bias on the attention's output projection
  bool mlp_bias_configurable;  ///< mlp_bias is respected
  bool qk_norm;
  kernels::RopePairs pairs;
  bool partial_rotation;  ///< partial_rotary_factor is respected
  WindowRule windows;
  int64_t window_default;  ///< sliding_window when the key is absent (null: no window)

  WeightNames names;
};

/// All families, in the order of the enum.
std::span<const FamilyTraits> all_families();

const FamilyTraits& traits_of(Family family);

}  // namespace pecia::model
