#include "lib/context/attention.hpp"

namespace pecia::context {

using parallel::BlockPlace;
using parallel::HeadShard;
using parallel::Sharding;

HeadShard Attention::held_heads(const BlockPlace& place, HeadCounts heads) {
  return parallel::head_shard(heads.num_heads, heads.num_kv_heads, place.sp * place.tp,
                              parallel::kv_shard(place.sp, place.sp_index, place.tp_index));
}

Attention::Attention(const ReplicaGroups& groups, HeadCounts heads, std::vector<int64_t> windows,
                     kernels::Backend& backend, device::Stream& stream, report::Recorder& recorder,
                     KvCache& cache, kernels::RowInvariant row_invariant)
    : groups_(groups),
      heads_(heads),
      cache_(cache),
      ring_(row_invariant == kernels::RowInvariant::yes
                ? AnyRing(std::in_place_type<InvariantAttention>, *groups.ring, backend, stream,
                          recorder, cache, held_heads(groups.place, heads).q.size(),
                          std::move(windows))
                : AnyRing(std::in_place_type<RingAttention>, *groups.ring, backend, stream,
                          recorder, cache, held_heads(groups.place, heads).q.size(),
                          std::move(windows))),
      exchange_(recorder) {
  PECIA_CHECK(cache.shape().num_kv_heads == held_heads(groups.place, heads).kv.size(),
              "a cache of {} KV heads for a shard of {}", cache.shape().num_kv_heads,
              held_heads(groups.place, heads).kv.size());
}

void Attention::begin_pass(const std::vector<parallel::PassSequence>& pass, parallel::Ring ring,
                           Sharding sharding) {
  std::visit([&](auto& any) { any.begin_pass(pass, ring); }, ring_);
  sharding_ = sharding;
  const BlockPlace& place = groups_.place;
  const auto num_rows = static_cast<int64_t>(positions().size());
  rows_ = sharded_rows(sharding, place, num_rows);

  const bool over_block = sharding == Sharding::gathered;
  comm::Communicator& group = over_block ? *groups_.block : *groups_.sp;
  exchange_group_ = sharding == Sharding::shift || group.size() == 1 ? nullptr : &group;
  const parallel::WeightCut cut = weight_cut(sharding, place);
  const int shards = place.sp * place.tp;
  plan_.held = parallel::head_shard(heads_.num_heads, heads_.num_kv_heads, cut.count, cut.index);
  plan_.rows.clear();
  plan_.wanted.clear();
  for (int rank = 0; rank < group.size(); ++rank) {
    const int shard = over_block ? rank : parallel::kv_shard(place.sp, rank, place.tp_index);
    plan_.rows.push_back(parallel::row_part({0, num_rows}, group.size(), rank));
    plan_.wanted.push_back(
        parallel::head_shard(heads_.num_heads, heads_.num_kv_heads, shards, shard));
  }
}

void Attention::run(int64_t layer, const TensorView& q, const TensorView& k, const TensorView& v,
                    const TensorView& out) {
  const auto attend = [&](const HeadExchange::Heads& rows, const TensorView& to) {
    std::visit([&](auto& ring) { ring.run(layer, rows.q, rows.k, rows.v, to); }, ring_);
  };
  if (exchange_group_ == nullptr) return attend({q, k, v}, out);
  const HeadExchange::Heads heads = exchange_.to_heads(*exchange_group_, plan_, {q, k, v});
  const TensorView attended =
      attended_.tensor(DType::fp32, {heads.q.rows(), heads.q.size(1), heads.q.size(2)});
  attend(heads, attended);
  exchange_.to_rows(*exchange_group_, plan_, attended, out);
}

RingTraffic Attention::expected_traffic() const {
  return std::visit([](const auto& ring) { return ring.expected_traffic(); }, ring_);
}

}  // namespace pecia::context
