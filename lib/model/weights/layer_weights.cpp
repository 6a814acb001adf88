// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/layer_weights.hpp"

#include "lib/base/core/error.hpp"

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
    case MatrixKind::q_down:
    case MatrixKind::kv_down:
    case MatrixKind::key_up:
    case MatrixKind::value_up:
    case MatrixKind::head_keys:
    case MatrixKind::attention_gate:
    case MatrixKind::recurrent_q:
    case MatrixKind::recurrent_k:
    case MatrixKind::recurrent_v:
    case MatrixKind::recurrent_z:
    case MatrixKind::recurrent_a:
    case MatrixKind::recurrent_b:
    case MatrixKind::recurrent_o:
    case MatrixKind::router:
    case MatrixKind::to_latents:
    case MatrixKind::from_latents:
    case MatrixKind::expert_gate:
    case MatrixKind::expert_up:
    case MatrixKind::expert_down:
    case MatrixKind::shared_gate:
    case MatrixKind::shared_up:
    case MatrixKind::shared_down:
    case MatrixKind::shared_row_gate:
    case MatrixKind::second_gate:
    case MatrixKind::second_up:
    case MatrixKind::head:
      break;
  }
  fail<InvalidArgument>("a layer has no single {}", role_of(kind).name);
}

LayerWeights cut_layer(const LayerWeights& layer, const ModelConfig& config, int64_t index,
                       WeightCut held, WeightCut cut) {
  if (held == cut) return layer;
  LayerWeights part = layer;
  if (!layer.mixture.experts.empty() && held.expert_ranks != cut.expert_ranks) {
    PECIA_CHECK(!held.deals_experts(), "experts of {} ranks for {}", held.expert_ranks,
                cut.expert_ranks);
    const parallel::RowRange own = experts_of(config, cut);
    part.mixture.experts.assign(layer.mixture.experts.begin() + own.begin,
                                layer.mixture.experts.begin() + own.end);
  }
  part.for_each_matrix([&](MatrixKind kind, LinearWeight& matrix) {
    if (!matrix.parts.empty()) matrix = cut_matrix(matrix, kind, config, index, held, cut);
  });
  if (!part.recurrent) return part;
  part.recurrent->for_each_cut_vector([&](CutUnit unit, TensorView& vector) {
    const parallel::RowRange inner = unit_part(config, unit, cut);
    vector = vector.slice_rows(inner.begin - unit_part(config, unit, held).begin, inner.size());
  });
  return part;
}

}  // namespace pecia::model
