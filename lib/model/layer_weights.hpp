// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One layer's weights, whole or cut for tensor parallelism: always views of one resident copy.
///
/// Cut in `count` parts, part `index` has the query heads and KV heads of head_shard, the same part
/// of the FFN's columns, the rows of q, k, v, gate and up that give them, and the columns of o and
/// down that take them; part 0 alone has the biases of o and down, since the parts' products are
/// added. Source: Megatron-LM, §3.

#include <array>

#include "lib/model/config.hpp"
#include "lib/model/linear_weight.hpp"
#include "lib/parallel/sharding.hpp"
#include "lib/parallel/traffic.hpp"

namespace pecia::model {

struct LayerWeights {
  TensorView attention_norm, ffn_norm;  ///< [hidden]
  TensorView q_norm, k_norm;            ///< [head_dim], or absent
  LinearWeight q, k, v, o;  ///< heads × head_dim rows in head order; o: [hidden, heads × head_dim]
  LinearWeight gate, up, down;
};

struct LayerMatrix {
  const char* name;
  LinearWeight LayerWeights::*member;
};
inline constexpr std::array<LayerMatrix, 7> layer_matrices{{{"q", &LayerWeights::q},
                                                            {"k", &LayerWeights::k},
                                                            {"v", &LayerWeights::v},
                                                            {"o", &LayerWeights::o},
                                                            {"gate", &LayerWeights::gate},
                                                            {"up", &LayerWeights::up},
                                                            {"down", &LayerWeights::down}}};

/// `cut` of a layer that is itself `held` of the whole one: `held.count` divides `cut.count` and
/// part `held.index` contains part `cut.index`.
LayerWeights cut_layer(const LayerWeights& layer, const ModelConfig& config,
                       parallel::WeightCut held, parallel::WeightCut cut);

/// FFN columns of a part, and rows of the embedding and the vocabulary matrix.
parallel::RowRange ffn_part(const ModelConfig& config, parallel::WeightCut cut);
parallel::RowRange vocab_part(const ModelConfig& config, parallel::WeightCut cut);

/// A layer as lib/parallel counts what passes through it send; `weights` is their resident type,
/// `operands` that of Model::operand_type.
parallel::BlockShape block_shape(const ModelConfig& config, DType weights, DType operands);

}  // namespace pecia::model
