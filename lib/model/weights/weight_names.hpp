// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The names of a checkpoint's tensors.

#include <cstdint>
#include <string>
#include <string_view>

namespace pecia::model {

/// Names of a recurrence (RecurrentWeights), in the form of WeightNames. Matrices are packed in one of
/// three ways; the names of the others are empty.
struct RecurrentNames {
  std::string_view qkv = "", z = "", b = "", a = "";  ///< rows of qkv: all of q, all of k, all of v
  std::string_view qkvz = "", ba = "";  ///< by key head, with the parts of its heads in each
  std::string_view zvkqa = "";          ///< all of z, all of v, …
  std::string_view conv = "", norm = "", o = "";
  std::string_view rate = "", step_bias = "", skip = "";  ///< with the whole names
};

/// Names without the prefix "model.layers.N." and the suffix ".weight" or ".bias". If a family
/// packs projections into one tensor, the pack has the name and the projections' own names are
/// empty.
struct WeightNames {
  std::string_view embedding, final_norm, head;         ///< full names, without ".weight"
  std::string_view attention_norm, ffn_norm;            ///< before the block; empty: none
  std::string_view post_attention_norm, post_ffn_norm;  ///< after the block; empty: none
  std::string_view q_norm, k_norm;                      ///< empty if the family has none
  std::string_view q, k, v;
  /// Of latent attention: hidden → latents (down), latents → heads (up). Queries without latents have
  /// the name q. The norms of the latents are q_norm and k_norm.
  std::string_view q_down = "", q_up = "", kv_down = "", kv_up = "";
  std::string_view qkv;  ///< rows as FamilyTraits::qkv_rows says
  std::string_view o;
  std::string_view gate, up;
  std::string_view gate_up;  ///< rows of gate above rows of up
  std::string_view down;
  std::string_view xielu = "";           ///< constants of the activation; empty: there is a gate
  std::string_view sinks = "";           ///< without ".weight"
  std::string_view attention_gate = "";  ///< empty if the family has none
  std::string_view router = "";          ///< of experts
  std::string_view choice_bias = "";     ///< of the router, with the whole name; empty: none
  std::string_view expert_gate = "", expert_up = "", expert_down = "";  ///< {} is the expert
  /// All experts of a layer, [experts, 2 · ffn, hidden] with the rows of gate above those of up, and
  /// [experts, hidden, ffn]; with the whole names. Where they are empty or there is no such tensor, each
  /// expert has tensors of its own.
  std::string_view experts_gate_up = "", experts_down = "";
  std::string_view to_latents = "", from_latents = "";  ///< of ExpertsConfig::latent
  std::string_view shared_gate = "", shared_up = "", shared_down = "";  ///< empty: none
  std::string_view shared_gate_up = "";   ///< rows of gate above rows of up
  std::string_view shared_row_gate = "";  ///< ExpertsConfig::shared_gate
  /// Of ModelConfig::dense_beside_experts: norms, and with the whole names the scales of the
  /// router's norm and of the experts' weights.
  std::string_view experts_norm = "", post_dense_norm = "", post_experts_norm = "";
  std::string_view router_scale = "", expert_scales = "";
  std::string_view layer_scale = "";  ///< with the whole name
  /// Of SecondEmbedding: full names, and then names in a layer.
  std::string_view second_embedding = "", second_projection = "", second_projection_norm = "";
  std::string_view second_gate = "", second_up = "", second_norm = "";
  RecurrentNames recurrent = {};
};

/// "model.layers.LAYER.NAME"
std::string layer_name(int64_t layer, std::string_view name);

/// Whether old checkpoints carry the tensor although it is computed here: rotary frequencies.
bool is_harmless(std::string_view name);

/// Whether the tensor is of the part of a model that reads images or hears.
bool is_of_images(std::string_view name);

}  // namespace pecia::model
