// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One layer's weights, whole or cut for tensor parallelism: always views of one resident copy.
///
///     layer = norm → mixer → add → norm → feed-forward → add
///
/// Cut in `count` parts, part `index` has the query heads and KV heads of head_shard, the same part
/// of the FFN's columns, the rows of q, k, v, gate and up that give them, and the columns of o and
/// down that take them (matrix_role.hpp).

#include "lib/model/matrix_role.hpp"
#include "lib/parallel/traffic.hpp"

namespace pecia::model {

/// The mixer: attention.
struct AttentionWeights {
  TensorView q_norm, k_norm;  ///< [head_dim], or absent
  LinearWeight q, k, v, o;  ///< heads × head_dim rows in head order; o: [hidden, heads × head_dim]
};

/// The feed-forward: down · (silu(gate · x) ∘ up · x).
struct GatedFfnWeights {
  LinearWeight gate, up, down;
};

struct LayerWeights {
  TensorView attention_norm, ffn_norm;  ///< [hidden]
  AttentionWeights attention;
  GatedFfnWeights ffn;

  /// Of layer_kinds.
  const LinearWeight& matrix(MatrixKind kind) const;
  LinearWeight& matrix(MatrixKind kind) {
    return const_cast<LinearWeight&>(static_cast<const LayerWeights*>(this)->matrix(kind));
  }
};

/// `cut` of a layer that is itself `held` of the whole one: `held.count` divides `cut.count` and
/// part `held.index` contains part `cut.index`.
LayerWeights cut_layer(const LayerWeights& layer, const ModelConfig& config,
                       parallel::WeightCut held, parallel::WeightCut cut);

/// A layer as lib/parallel counts what passes through it send; `weights` is their resident type,
/// `operands` that of Model::operand_type.
parallel::BlockShape block_shape(const ModelConfig& config, DType weights, DType operands);

}  // namespace pecia::model
