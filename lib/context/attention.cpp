// SPDX-License-Identifier: Apache-2.0
#include "lib/context/attention.hpp"

#include <algorithm>

namespace pecia::context {

using parallel::BlockPlace;
using parallel::HeadShard;
using parallel::Sharding;

HeadShard Attention::held_heads(const BlockPlace& place, HeadCounts heads) {
  return parallel::head_shard(heads.num_heads, heads.num_kv_heads, place.sp * place.tp,
                              parallel::kv_shard(place.sp, place.sp_index, place.tp_index));
}

namespace {

/// Levels join the ranks that share a sequence's tokens. Where none do, they join those of TP.
LevelRanks level_ranks(const ReplicaGroups& groups, HeadCounts heads) {
  const int sp = groups.place.sp, tp = groups.place.tp;
  if (groups.cp > 1 || sp > 1 || tp == 1) return {groups.ring_places};
  const int64_t holders = std::max<int64_t>(1, tp / heads.num_kv_heads);
  return {groups.tp_places, groups.tp.get(), static_cast<int>(holders)};
}

}  // namespace

Attention::Attention(const ReplicaGroups& groups, HeadCounts heads, std::vector<int64_t> windows,
                     const Compute& compute, KvCache& cache, kernels::RowInvariant row_invariant,
                     const std::optional<parallel::SparseSetting>& sparse)
    : groups_(groups),
      heads_(heads),
      cache_(cache),
      ring_(row_invariant == kernels::RowInvariant::yes
                ? AnyRing(std::in_place_type<InvariantAttention>, *groups.ring, compute, cache,
                          held_heads(groups.place, heads).q.size(), std::move(windows), heads.scale)
                : AnyRing(std::in_place_type<RingAttention>, *groups.ring, compute, cache,
                          held_heads(groups.place, heads).q.size(), std::move(windows), sparse,
                          level_ranks(groups, heads), heads.scale)),
      exchange_(compute),
      attended_(compute.buffer()) {
  PECIA_CHECK(cache.shape().num_kv_heads == held_heads(groups.place, heads).kv.size(),
              "a cache of {} KV heads for a shard of {}", cache.shape().num_kv_heads,
              held_heads(groups.place, heads).kv.size());
}

void Attention::set_sink_logits(const std::vector<TensorView>& logits) {
  const parallel::HeadRange heads = held_heads(groups_.place, heads_).q;
  std::vector<TensorView> held;
  for (const TensorView& all : logits)
    held.push_back(all.slice_rows(heads.begin, heads.end - heads.begin));
  std::visit([&](auto& ring) { ring.set_sink_logits(std::move(held)); }, ring_);
}

void Attention::begin_pass(const std::vector<parallel::TeamPass>& teams, int64_t number) {
  std::visit([&](auto& any) { any.begin_pass(teams, number); }, ring_);
  exchanges_ = false;
  in_parts_ = nullptr;
  const auto own = team_of(teams, groups_.cp_index);
  if (!own) return;
  const auto& [team, pass, placements] = teams[*own];
  const Sharding sharding = sharding_ = team.sharding;
  may_be_step_ = team.ring != parallel::Ring::levels;
  const BlockPlace& place = groups_.place;
  const auto num_rows = static_cast<int64_t>(positions().size());
  rows_ = sharded_rows(sharding, place, num_rows);

  const bool over_block = sharding == Sharding::gathered;
  comm::Communicator& group = over_block ? *groups_.block : *groups_.sp;
  exchanges_ = sharding != Sharding::shift && group.size() > 1;
  if (!exchanges_) return;
  const parallel::WeightCut cut = weight_cut(sharding, place);
  const int shards = place.sp * place.tp;
  ExchangePlan plan;
  plan.held = parallel::head_shard(heads_.num_heads, heads_.num_kv_heads, cut.count, cut.index);
  for (int rank = 0; rank < group.size(); ++rank) {
    const int shard = over_block ? rank : parallel::kv_shard(place.sp, rank, place.tp_index);
    plan.rows.push_back(parallel::row_part({0, num_rows}, group.size(), rank));
    plan.wanted.push_back(
        parallel::head_shard(heads_.num_heads, heads_.num_kv_heads, shards, shard));
  }
  // Round a ring, merged in a fixed order, or by levels, all rows go together.
  const bool in_parts = team.size() == 1 && team.ring != parallel::Ring::levels;
  auto* alone = in_parts ? std::get_if<RingAttention>(&ring_) : nullptr;
  parts_ = alone != nullptr ? parallel::attend_parts(plan.rows, group.rank())
                            : parallel::attend_at_once(plan.rows);
  if (parts_.size() > 1) {
    std::vector<parallel::RowRange> rows;
    for (const parallel::AttendPart& part : parts_) rows.push_back(part.rows);
    in_parts_ = alone;
    in_parts_->plan_parts(pass, rows);
  }
  exchange_.begin_pass(group, std::move(plan));
}

void Attention::start_keys(const TensorView& k, const TensorView& v) {
  if (exchanges_)
    exchange_.start_keys(k, v);
  else
    keys_ = {k, v};
}

void Attention::attend(int64_t layer, const TensorView& q, const HeadExchange::Keys& keys,
                       const TensorView& out) {
  std::visit([&](auto& ring) { ring.run(layer, q, keys.k, keys.v, out); }, ring_);
}

void Attention::run(int64_t layer, const TensorView& q, const TensorView& out) {
  if (!exchanges_) return attend(layer, q, keys_, out);
  const TensorView queries = exchange_.start_queries(q);
  const TensorView attended =
      attended_.tensor(DType::fp32, {queries.rows(), queries.size(1), queries.size(2)});
  const HeadExchange::Keys keys = exchange_.wait_keys();
  if (in_parts_ != nullptr) in_parts_->store(layer, keys.k, keys.v);
  for (size_t part = 0; part < parts_.size(); ++part) {
    for (const int distance : parts_[part].distances) exchange_.wait_queries(distance);
    if (in_parts_ != nullptr)
      in_parts_->attend_part(layer, part, queries, attended);
    else
      attend(layer, queries, keys, attended);
    for (const int distance : parts_[part].distances) exchange_.start_outputs(distance, attended);
  }
  exchange_.wait_outputs(attended, out);
}

}  // namespace pecia::context
