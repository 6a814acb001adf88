// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How each family names its tensors in a checkpoint.

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/model/config.hpp"

namespace pecia::model {

/// Names without the "model.layers.N." before and the ".weight" or ".bias" behind. Projections that
/// a family packs into one tensor have their name under the pack's, and are empty themselves.
struct WeightNames {
  std::string_view embedding, final_norm, head;  ///< whole names, without ".weight"
  std::string_view attention_norm, ffn_norm;
  std::string_view q_norm, k_norm;  ///< empty where the family has none
  std::string_view q, k, v;
  std::string_view qkv;  ///< InternLM2: per KV head its query heads' rows, its key's, its value's
  std::string_view o;
  std::string_view gate, up;
  std::string_view gate_up;  ///< GLM: gate's rows above up's
  std::string_view down;
};

const WeightNames& weight_names(Family family);

/// "model.layers.LAYER.NAME"
std::string layer_name(int64_t layer, std::string_view name);

/// Tensors that old checkpoints carry and that are computed here: rotary frequencies.
bool is_harmless(std::string_view name);

}  // namespace pecia::model
