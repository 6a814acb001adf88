// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The role of each kind of matrix. Its shape, and how it is cut over ranks that hold parts of a
/// layer, follow from the role. Source: Megatron-LM, §3.

#include <array>
#include <cstdint>
#include <string_view>

#include "lib/model/config/config.hpp"
#include "lib/model/weights/linear_weight.hpp"
#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::model {

enum class MatrixKind : uint8_t {
  q,
  k,
  v,
  q_down,     ///< with latents: hidden → latents of queries
  kv_down,    ///< with latents: hidden → latents of keys and values, and the rotated part
  key_up,     ///< with latents: K_hᵀ of each head, [kv_rank, nope_dim]
  value_up,   ///< with latents: V_h of each head, [value_dim, kv_rank]
  head_keys,  ///< with latents: K_h of each head, [nope_dim, kv_rank], from which keys are expanded
  attention_gate,
  o,
  recurrent_q,  ///< of RecurrentWeights, as are:
  recurrent_k,
  recurrent_v,
  recurrent_z,
  recurrent_a,
  recurrent_b,
  recurrent_o,
  gate,
  up,
  down,
  router,
  to_latents,    ///< of ExpertsConfig::latent: hidden → latents
  from_latents,  ///< and back
  expert_gate,
  expert_up,
  expert_down,
  shared_gate,
  shared_up,
  shared_down,
  shared_row_gate,
  second_gate,  ///< of SecondEmbedding: hidden → width
  second_up,    ///< and back
  head
};

/// The kinds of a layer whose feed-forward is dense, in the order in which it uses them.
inline constexpr std::array layer_kinds{MatrixKind::q,   MatrixKind::k,    MatrixKind::v,
                                        MatrixKind::o,   MatrixKind::gate, MatrixKind::up,
                                        MatrixKind::down};
inline constexpr size_t num_matrix_kinds = static_cast<size_t>(MatrixKind::head) + 1;

/// The unit that is divided over ranks: elements of the query heads as they are projected, as
/// attention attends latents, without their rotated part, or as they are put out; of the KV heads; of
/// a recurrence's key heads and heads, or these heads themselves; of a dense feed-forward's width, of
/// each expert's width, of the shared expert's, or of the vocabulary.
/// Every rank has the whole router, all of what latents are made of, also those of experts, and the row
/// that gates the shared expert. Experts that are dealt out (WeightCut) are not divided. The shared
/// expert is cut as dense feed-forwards are also then: ranks with the same rows add their results anyway,
/// so its parts cost no message, and ranks with other rows have it whole.
enum class CutUnit : uint8_t {
  query_heads,
  latent_heads,
  nope_heads,
  output_heads,
  kv_heads,
  recurrent_keys,
  recurrent_values,
  recurrent_heads,
  ffn,
  expert_ffn,
  shared_ffn,
  vocab,
  experts,  ///< whole on every rank, as are:
  query_latents,
  key_latents,
  one_row,
  expert_latents,
  second
};

/// Whether every rank has all of such matrices.
constexpr bool is_whole_everywhere(CutUnit unit) {
  return unit >= CutUnit::experts;
}

struct MatrixRole {
  std::string_view name;
  CutUnit unit;
  /// outputs: the matrix is [unit, width], and products of parts stand side by side. inputs: it is
  /// [width, unit], and products of parts are added, so only part 0 has the bias.
  enum class Side : uint8_t { outputs, inputs } side;
  /// The member that tells whether matrices of this kind have a bias; null: never.
  bool ModelConfig::*bias;
  int64_t (*width)(const ModelConfig&) = hidden_of;

  /// Of a matrix of the layer.
  int64_t out(const ModelConfig& config, int64_t layer = 0) const;
  int64_t in(const ModelConfig& config, int64_t layer = 0) const;
  bool has_bias(const ModelConfig& config) const;
  static int64_t hidden_of(const ModelConfig& config) { return config.hidden; }
};

const MatrixRole& role_of(MatrixKind kind);

/// How many matrices of this kind the model has, and a layer has.
int64_t num_matrices(const ModelConfig& config, MatrixKind kind);
int64_t num_matrices(const ModelConfig& config, MatrixKind kind, int64_t layer);

/// The range of the unit's elements that belongs to a cut. Parts of KV heads and of key heads overlap
/// when several ranks share a head. `layer`: where layers differ in the unit.
parallel::RowRange unit_part(const ModelConfig& config, CutUnit unit, parallel::WeightCut cut,
                             int64_t layer = 0);

/// Whether the part has the biases that are added once for all parts.
bool has_added_bias(CutUnit unit, parallel::WeightCut cut);

/// The experts that a cut has: all, or those that are dealt out to it.
parallel::RowRange experts_of(const ModelConfig& config, parallel::WeightCut cut);

/// A view of the part `cut` of a matrix that is itself the part `held` (see cut_layer).
LinearWeight cut_matrix(const LinearWeight& matrix, MatrixKind kind, const ModelConfig& config,
                        int64_t layer, parallel::WeightCut held, parallel::WeightCut cut);

}  // namespace pecia::model
