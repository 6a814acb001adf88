// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The names of a checkpoint's tensors.

#include <cstdint>
#include <string>
#include <string_view>

namespace pecia::model {

/// Names without the prefix "model.layers.N." and the suffix ".weight" or ".bias". If a family
/// packs projections into one tensor, the pack has the name and the projections' own names are
/// empty.
struct WeightNames {
  std::string_view embedding, final_norm, head;  ///< full names, without ".weight"
  std::string_view attention_norm, ffn_norm;
  std::string_view q_norm, k_norm;  ///< empty if the family has none
  std::string_view q, k, v;
  std::string_view qkv;  ///< InternLM2: rows per KV head: its query heads, its key, its value
  std::string_view o;
  std::string_view gate, up;
  std::string_view gate_up;  ///< GLM: rows of gate above rows of up
  std::string_view down;
};

/// "model.layers.LAYER.NAME"
std::string layer_name(int64_t layer, std::string_view name);

/// Whether old checkpoints carry the tensor although it is computed here: rotary frequencies.
bool is_harmless(std::string_view name);

}  // namespace pecia::model
