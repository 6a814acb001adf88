// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layer_weights.hpp"

#include "lib/core/error.hpp"

namespace pecia::model {

using parallel::WeightCut;

const LinearWeight& LayerWeights::matrix(MatrixKind kind) const {
  switch (kind) {
    case MatrixKind::q:
      return attention.q;
    case MatrixKind::k:
      return attention.k;
    case MatrixKind::v:
      return attention.v;
    case MatrixKind::o:
      return attention.o;
    case MatrixKind::gate:
      return ffn.gate;
    case MatrixKind::up:
      return ffn.up;
    case MatrixKind::down:
      return ffn.down;
    case MatrixKind::head:
      break;
  }
  fail<InvalidArgument>("a layer has no {}", role_of(kind).name);
}

LayerWeights cut_layer(const LayerWeights& layer, const ModelConfig& config, WeightCut held,
                       WeightCut cut) {
  if (held == cut) return layer;
  LayerWeights part = layer;
  for (const MatrixKind kind : layer_kinds)
    part.matrix(kind) = cut_matrix(layer.matrix(kind), kind, config, held, cut);
  return part;
}

}  // namespace pecia::model
