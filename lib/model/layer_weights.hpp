// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One layer's weights, whole or cut for tensor parallelism. They are always views of one resident
/// copy.
///
///     layer = norm → mixer → norm → add → norm → feed-forward → norm → add
///
/// A family has the norms before the two blocks, the norms after them, or both.
///
/// When weights are cut in `count` parts, part `index` has the query heads and KV heads of
/// head_shard and the same part of the FFN's columns. It holds the rows of q, k, v, gate and up
/// that produce them, and the columns of o and down that consume them (matrix_role.hpp).

#include "lib/model/matrix_role.hpp"
#include "lib/parallel/sharding.hpp"

namespace pecia::model {

/// The weights of the mixer, which is attention.
struct AttentionWeights {
  /// Whole on every rank: [head_dim], [heads × head_dim] if all heads are normed together, or
  /// absent.
  TensorView q_norm, k_norm;
  LinearWeight q, k, v, o;  ///< heads × head_dim rows in head order; o: [hidden, heads × head_dim]
};

/// The weights of the feed-forward: down · (activation(gate · x) ∘ up · x).
struct GatedFfnWeights {
  LinearWeight gate, up, down;
};

struct LayerWeights {
  TensorView attention_norm, ffn_norm;            ///< [hidden], or absent
  TensorView post_attention_norm, post_ffn_norm;  ///< [hidden], or absent
  AttentionWeights attention;
  GatedFfnWeights ffn;

  /// All norms, those that are absent, too.
  std::array<TensorView*, 6> norms() {
    return {&attention_norm, &ffn_norm,         &post_attention_norm,
            &post_ffn_norm,  &attention.q_norm, &attention.k_norm};
  }

  /// The matrix of a kind in layer_kinds.
  const LinearWeight& matrix(MatrixKind kind) const;
  LinearWeight& matrix(MatrixKind kind) {
    return const_cast<LinearWeight&>(static_cast<const LayerWeights*>(this)->matrix(kind));
  }
};

/// Cuts a layer that is already a part: `layer` is the part `held` of the whole layer, and the
/// result is its part `cut`. `held.count` divides `cut.count`, and part `held.index` contains part
/// `cut.index`.
LayerWeights cut_layer(const LayerWeights& layer, const ModelConfig& config,
                       parallel::WeightCut held, parallel::WeightCut cut);

}  // namespace pecia::model
