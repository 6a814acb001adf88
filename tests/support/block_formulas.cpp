// SPDX-License-Identifier: Apache-2.0
#include "tests/support/block_formulas.hpp"

#include "lib/ranks/parallel/heads.hpp"

namespace pecia::parallel {
namespace {

constexpr int64_t fp32_bytes = 4;

/// To heads: each other rank gets, of the rows here, its query heads and KV heads; back to rows:
/// each other rank gets the outputs of its rows.
int64_t exchange_bytes(const BlockShape& shape, Sharding sharding, const BlockPlace& place,
                       int64_t num_rows) {
  const bool over_block = sharding == Sharding::gathered;
  if (sharding == Sharding::shift) return 0;
  const int shards = place.sp * place.tp;
  const int size = over_block ? shards : place.sp;
  const int rank = over_block ? kv_shard(place.sp, place.sp_index, place.tp_index) : place.sp_index;
  const HeadShard heads =
      head_shard(shape.num_heads, shape.num_kv_heads, shards, 0);  // of any rank
  const int64_t own = row_part({0, num_rows}, size, rank).size();
  const int64_t out = own * (heads.q.size() + 2 * heads.kv.size()) * (size - 1);
  const int64_t back = (num_rows - own) * heads.q.size();
  return (out + back) * shape.head_dim * fp32_bytes;
}

/// Reduce-scatter over cuts of `elements`, the first ones longer, then all-gather of the own cut.
int64_t all_reduce_bytes(int64_t elements, int size, int rank) {
  const int64_t own = elements / size + (rank < elements % size ? 1 : 0);
  return (elements - own + own * (size - 1)) * fp32_bytes;
}

/// Of each of the own rows' blocks by itself.
int64_t all_reduce_bytes(const ShardedRows& rows, int64_t width, const WeightCut& cut) {
  int64_t bytes = 0;
  for (const RowRange& own : rows.own)
    bytes += all_reduce_bytes(own.size() * width, cut.count, cut.index);
  return bytes;
}

}  // namespace

LayerTraffic layer_traffic(const BlockShape& shape, Sharding sharding, const BlockPlace& place,
                           int64_t num_rows) {
  const ShardedRows rows = sharded_rows(sharding, place, num_rows);
  const WeightCut cut = weight_cut(sharding, place);
  constexpr int products = 2;  // of attention and of the FFN
  LayerTraffic traffic;
  traffic.heads = exchange_bytes(shape, sharding, place, num_rows);
  switch (sharding) {
    case Sharding::base:
    case Sharding::shift:
      if (cut.count > 1) traffic.reduce = products * all_reduce_bytes(rows, shape.hidden, cut);
      break;
    case Sharding::sp_tp:
      traffic.gather =
          products * rows.num_own() * shape.hidden * (cut.count - 1) * shape.operand_bytes;
      traffic.reduce = products * (rows.linear.size() - rows.num_own()) * shape.hidden * fp32_bytes;
      break;
    case Sharding::gathered: {
      const HeadShard held =
          head_shard(shape.num_heads, shape.num_kv_heads, place.tp, place.tp_index);
      const int64_t elements =
          shape.hidden * (2 * (held.q.size() + held.kv.size()) * shape.head_dim +
                          3 * row_part({0, shape.ffn}, place.tp, place.tp_index).size());
      traffic.weights = elements * shape.weight_bytes * (place.tp - 1);
      break;
    }
  }
  return traffic;
}

int64_t embedding_traffic(const BlockShape& shape, Sharding sharding, const BlockPlace& place,
                          int64_t num_rows) {
  const ShardedRows rows = sharded_rows(sharding, place, num_rows);
  const WeightCut cut = weight_cut(sharding, place);
  if (sharding == Sharding::base || sharding == Sharding::shift)
    return cut.count == 1 ? 0 : all_reduce_bytes(rows, shape.hidden, cut);
  int64_t others = 0;  // rows of the other ranks that hold parts of the table
  for (int tp_index = 0; tp_index < place.tp; ++tp_index)
    if (tp_index != place.tp_index)
      others += sharded_rows(sharding, {place.sp, place.tp, place.sp_index, tp_index}, num_rows)
                    .num_own();
  return others * shape.hidden * fp32_bytes;
}

int64_t logits_traffic(int64_t count, const WeightCut& vocab, int64_t row_bytes) {
  return (count - row_part({0, count}, vocab.count, vocab.index).size()) * row_bytes;
}

int64_t block_traffic(const BlockShape& shape, Sharding sharding, int sp, int tp,
                      int64_t num_rows) {
  int64_t bytes = 0;
  for (int sp_index = 0; sp_index < sp; ++sp_index)
    for (int tp_index = 0; tp_index < tp; ++tp_index)
      bytes += layer_traffic(shape, sharding, {sp, tp, sp_index, tp_index}, num_rows).total();
  return bytes;
}

}  // namespace pecia::parallel
