// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layer_weights.hpp"

#include "lib/parallel/heads.hpp"

namespace pecia::model {

using parallel::HeadRange;
using parallel::HeadShard;
using parallel::RowRange;
using parallel::WeightCut;

RowRange ffn_part(const ModelConfig& config, WeightCut cut) {
  return parallel::row_part({0, config.ffn}, cut.count, cut.index);
}

RowRange vocab_part(const ModelConfig& config, WeightCut cut) {
  return parallel::row_part({0, config.vocab}, cut.count, cut.index);
}

parallel::BlockShape block_shape(const ModelConfig& config, DType weights, DType operands) {
  return {config.hidden,   config.ffn,       config.num_heads, config.num_kv_heads,
          config.head_dim, size_of(weights), size_of(operands)};
}

LayerWeights cut_layer(const LayerWeights& layer, const ModelConfig& config, WeightCut held,
                       WeightCut cut) {
  if (held == cut) return layer;
  const auto heads_of = [&](WeightCut part) {
    return parallel::head_shard(config.num_heads, config.num_kv_heads, part.count, part.index);
  };
  const HeadShard outer = heads_of(held), inner = heads_of(cut);
  const RowRange outer_ffn = ffn_part(config, held), inner_ffn = ffn_part(config, cut);
  const auto rows_of_heads = [&](const LinearWeight& weight, HeadRange whole, HeadRange part) {
    return slice_rows(weight, (part.begin - whole.begin) * config.head_dim,
                      part.size() * config.head_dim);
  };
  const auto columns = [&](const LinearWeight& weight, int64_t begin, int64_t count) {
    LinearWeight slice = slice_columns(weight, begin, count);
    if (cut.index == 0)
      for (size_t i = 0; i < slice.parts.size(); ++i) slice.parts[i].bias = weight.parts[i].bias;
    return slice;
  };
  const int64_t ffn_begin = inner_ffn.begin - outer_ffn.begin;

  LayerWeights part = layer;
  part.q = rows_of_heads(layer.q, outer.q, inner.q);
  part.k = rows_of_heads(layer.k, outer.kv, inner.kv);
  part.v = rows_of_heads(layer.v, outer.kv, inner.kv);
  part.o = columns(layer.o, (inner.q.begin - outer.q.begin) * config.head_dim,
                   inner.q.size() * config.head_dim);
  part.gate = slice_rows(layer.gate, ffn_begin, inner_ffn.size());
  part.up = slice_rows(layer.up, ffn_begin, inner_ffn.size());
  part.down = columns(layer.down, ffn_begin, inner_ffn.size());
  return part;
}

}  // namespace pecia::model
