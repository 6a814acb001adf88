// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One layer's weights, whole or cut for tensor parallelism. They are always views of one resident
/// copy.
///
///     layer = norm → mixer → add → norm → feed-forward → add
///
/// When weights are cut in `count` parts, part `index` has the query heads and KV heads of
/// head_shard and the same part of the FFN's columns. It holds the rows of q, k, v, gate and up
/// that produce them, and the columns of o and down that consume them (matrix_role.hpp).

#include "lib/model/matrix_role.hpp"
#include "lib/parallel/sharding.hpp"

namespace pecia::model {

/// The weights of the mixer, which is attention.
struct AttentionWeights {
  TensorView q_norm, k_norm;  ///< [head_dim], or absent
  LinearWeight q, k, v, o;  ///< heads × head_dim rows in head order; o: [hidden, heads × head_dim]
};

/// The weights of the feed-forward: down · (silu(gate · x) ∘ up · x).
struct GatedFfnWeights {
  LinearWeight gate, up, down;
};

struct LayerWeights {
  TensorView attention_norm, ffn_norm;  ///< [hidden]
  AttentionWeights attention;
  GatedFfnWeights ffn;

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
