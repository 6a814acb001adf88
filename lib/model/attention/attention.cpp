// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/attention.hpp"

#include <algorithm>
#include <ranges>

#include "lib/model/attention/head_levels.hpp"
#include "lib/model/attention/levels.hpp"
#include "lib/ranks/comm/team.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"

namespace pecia::attention {

using parallel::BlockPlace;
using parallel::HeadShard;
using parallel::RowRange;
using parallel::Sharding;

HeadShard Attention::held_heads(const BlockPlace& place, int64_t num_heads, int64_t num_kv_heads) {
  return parallel::head_shard(num_heads, num_kv_heads, place.sp * place.tp,
                              parallel::kv_shard(place.sp, place.sp_index, place.tp_index));
}

namespace {

/// Levels join the ranks that share a sequence's tokens. Where none do, they join those of TP.
LevelRanks level_ranks(const ReplicaGroups& groups, const HeadCounts& heads) {
  const int sp = groups.place.sp, tp = groups.place.tp;
  const int64_t first =
      Attention::held_heads(groups.place, heads.num_heads, heads.num_kv_heads).kv.begin;
  if (groups.cp > 1 || sp > 1 || tp == 1)
    return {groups.ring_places, nullptr, 1, first, heads.num_kv_heads};
  const int64_t holders = std::max<int64_t>(1, tp / heads.num_kv_heads);
  return {groups.tp_places, groups.tp.get(), static_cast<int>(holders), first, heads.num_kv_heads};
}

std::unique_ptr<LevelAttention> make_levels(const ReplicaGroups& groups, const HeadCounts& heads,
                                            const Compute& compute, KvCache& cache,
                                            AttentionSteps& steps,
                                            const parallel::SparseSetting& setting) {
  const LevelRanks ranks = level_ranks(groups, heads);
  if (ranks.heads != nullptr)
    return std::make_unique<HeadLevels>(compute, cache, steps, ranks, ranks.heads->rank(), setting);
  return std::make_unique<Levels>(compute, cache, steps, ranks, groups.ring->rank(), setting);
}

}  // namespace

Attention::Attention(const ReplicaGroups& groups, HeadCounts heads,
                     std::vector<kernels::Window> windows, const Compute& compute, KvCache& cache,
                     kernels::RowInvariant row_invariant,
                     const std::optional<parallel::SparseSetting>& sparse)
    : groups_(groups),
      heads_(std::move(heads)),
      cache_(cache),
      steps_(compute, cache,
             held_heads(groups.place, heads_.num_heads, heads_.kv_heads(0)).q.size(),
             std::move(windows), row_invariant, heads_.scale, groups.wire),
      ledger_(cache, groups.ring->size(), groups.ring->rank(),
              row_invariant == kernels::RowInvariant::yes
                  ? parallel::layout_ranks / groups.ring->size()
                  : 1),
      copies_(compute, cache, ledger_, groups.copies.get()),
      pass_kv_(steps_),
      pass_q_(compute, steps_),
      broadcast_q_(compute, steps_),
      halo_(steps_),
      row_parts_(steps_),
      exchange_(compute, groups.wire),
      attended_(compute.buffer()) {
  for (int64_t layer = 0; layer < cache.layers(); ++layer) {
    const int64_t held =
        held_heads(groups.place, heads_.num_heads, heads_.kv_heads(layer)).kv.size();
    PECIA_CHECK(cache.shape(layer).num_kv_heads == held,
                "a cache of {} KV heads for a shard of {} in layer {}",
                cache.shape(layer).num_kv_heads, held, layer);
    shares_keys_ = shares_keys_ || cache.attends_other(layer);
  }
  for (size_t kind = 0; kind < cache.kinds().size(); ++kind)
    placed_rows_.push_back({compute.buffer(), compute.buffer()});
  PECIA_CHECK(!sparse || cache.kinds().size() == 1, "levels of layers whose keys have {} shapes",
              cache.kinds().size());
  if (row_invariant == kernels::RowInvariant::yes)
    invariant_ = std::make_unique<Invariant>(compute, steps_, groups.ring->size());
  else if (sparse)
    levels_ = make_levels(groups, heads_, compute, cache, steps_, *sparse);
}

void Attention::set_sink_logits(const std::vector<TensorView>& logits) {
  const parallel::HeadRange heads =
      held_heads(groups_.place, heads_.num_heads, heads_.kv_heads(0)).q;
  std::vector<TensorView> held;
  for (const TensorView& all : logits)
    held.push_back(all.slice_rows(heads.begin, heads.end - heads.begin));
  steps_.set_sink_logits(std::move(held));
}

void Attention::begin_pass(const std::vector<parallel::TeamPass>& teams, int64_t number) {
  if (invariant_) Invariant::check(teams, groups_.ring->size());
  exchanges_ = runs_blocks_ = false;
  begun_ = stored_ = -1;
  pass_ = PassRows(ledger_, teams);
  if (!pass_.has_team()) return;
  if (invariant_) pass_.store_all();
  expands_latents_ = gains_by_expanding();
  join(number);
  begin_paths();
  sharding_ = pass_.team().sharding;
  rows_ = sharded_rows(sharding_, groups_.place, pass_.count());
  begin_exchange();
  begin_blocks();
}

/// Expanded latents are made of all tokens that a call attends, so each block would make them again.
void Attention::begin_blocks() {
  runs_blocks_ = !exchanges_ && pass_.size() == 1 && rows_.blocks.size() > 1 && !by_levels_ &&
                 !invariant_ && !expands_latents_ && pass_.stores_all();
  if (runs_blocks_) row_parts_.begin_pass(pass_, rows_.blocks);
}

bool Attention::gains_by_expanding() const {
  const DType dtype = cache_.shape().dtype;
  if (!heads_.latent || invariant_ || (dtype != DType::fp32 && dtype != DType::bf16) ||
      heads_.latent->value_dim > heads_.latent->query_dim())
    return false;
  parallel::LatentLoad load;
  for (const parallel::PassSequence& rows : pass_.sequences()) load.add(rows.count, rows.first);
  return parallel::expands_latents(*heads_.latent, load, pass_.size(),
                                   pass_.team().ring == parallel::AttentionExchange::pass_kv);
}

/// The team's ring: all ranks where it is all instances in their order, else a group of its own,
/// which costs no message.
void Attention::join(int64_t number) {
  comm::Communicator& ranks = *groups_.ring;
  const auto& instances = pass_.team().instances;
  if (instances == parallel::team_of_all(ranks.size()).instances) {
    if (team_ring_) ranks.enter_team(0, 0);
    team_ring_.reset();
  } else {
    team_ring_ = comm::make_team(ranks, {instances.begin(), instances.end()}, number);
  }
  steps_.begin_pass(team_ring_ ? *team_ring_ : ranks,
                    expands_latents_ ? heads_.latent : std::nullopt);
}

/// The path of the pass's layers with this window.
AttentionPath& Attention::path_of(kernels::Window window) {
  if (invariant_) return *invariant_;
  switch (pass_.team().ring) {
    case parallel::AttentionExchange::pass_q:
      if (window > 0 && pass_.size() > 1) return broadcast_q_;
      return pass_q_;
    case parallel::AttentionExchange::broadcast_q:
      return broadcast_q_;
    case parallel::AttentionExchange::levels:
      if (window == 0) return *levels_;
      [[fallthrough]];
    case parallel::AttentionExchange::pass_kv:
      if (Halo::goes_straight(pass_, window)) return halo_;
      return pass_kv_;
  }
  return pass_kv_;
}

void Attention::begin_paths() {
  by_levels_ = pass_.team().ring == parallel::AttentionExchange::levels;
  PECIA_CHECK(!by_levels_ || levels_, "a pass by levels needs a setting");
  std::vector<AttentionPath*> used;
  if (by_levels_) used.push_back(levels_.get());  // it weighs tokens in all layers
  paths_.clear();
  for (const kernels::Window window : steps_.windows()) {
    AttentionPath* path = paths_[window] = &path_of(window);
    if (std::ranges::find(used, path) == used.end()) used.push_back(path);
  }
  for (AttentionPath* path : used) {
    std::vector<kernels::Window> windows;
    for (const auto& [window, of] : paths_)
      if (of == path) windows.push_back(window);
    path->begin_pass(pass_, windows);
    const auto [stores_all_rows, attends_once, query_type] = path->traits();
    if (path == used.front()) traits_ = path->traits();
    traits_.stores_all_rows &= stores_all_rows;
    traits_.attends_once &= attends_once;
    if (query_type != traits_.query_type) traits_.query_type = DType::fp32;
  }
  const auto with_window = paths_.upper_bound(0);
  if (pass_.size() == 1 || with_window == paths_.end()) return;
  AttentionPath& without = by_levels_ ? pass_kv_ : path_of(0);  // levels have windows in a ring
  bytes_without_window_ = without.bytes_without_window(
      pass_, steps_.kind(steps_.kind_of_window(with_window->first)).shape);
}

void Attention::begin_exchange() {
  const bool over_block = sharding_ == Sharding::gathered;
  comm::Communicator& group = over_block ? *groups_.block : *groups_.sp;
  exchanges_ = sharding_ != Sharding::shift && group.size() > 1;
  if (!exchanges_) return;
  exchange_group_ = &group;
  exchange_plans_.clear();
  for (const int kind : steps_.kinds()) {
    const auto layer = std::ranges::find_if(std::views::iota(int64_t{0}),
                                            [&](int64_t of) { return cache_.kind(of) == kind; });
    ExchangePlan plan = exchange_plan(heads_.kv_heads(*layer));
    choose_routes(over_block ? groups_.block_labels.servers : groups_.sp_servers,
                  steps_.kind(kind).shape.head_dim, plan);
    exchange_plans_.push_back(std::move(plan));
  }
  // Round a ring, merged in a fixed order, or by levels, all rows go together.
  const std::vector<RowRange>& of_ranks = exchange_plans_.front().rows;
  const bool in_parts = pass_.size() == 1 && !by_levels_ && !invariant_;
  parts_ = in_parts ? parallel::attend_parts(of_ranks, group.rank())
                    : parallel::attend_at_once(of_ranks);
  std::vector<RowRange> rows;
  for (const parallel::AttendPart& part : parts_)
    if (parts_.size() > 1) rows.push_back(part.rows);
  row_parts_.begin_pass(pass_, std::move(rows));
  exchanged_kind_ = 0;
  exchange_.begin_pass(group, exchange_plans_.front());
}

/// Of layers with this number of KV heads.
ExchangePlan Attention::exchange_plan(int64_t num_kv_heads) const {
  const BlockPlace& place = groups_.place;
  const bool over_block = sharding_ == Sharding::gathered;
  const parallel::WeightCut cut = weight_cut(sharding_, place);
  const int shards = place.sp * place.tp;
  ExchangePlan plan;
  plan.held = parallel::head_shard(heads_.num_heads, num_kv_heads, cut.count, cut.index);
  const int ranks = exchange_group_->size();
  for (int rank = 0; rank < ranks; ++rank) {
    const int shard = over_block ? rank : parallel::kv_shard(place.sp, rank, place.tp_index);
    plan.rows.push_back(parallel::row_part({0, pass_.count()}, ranks, rank));
    plan.wanted.push_back(parallel::head_shard(heads_.num_heads, num_kv_heads, shards, shard));
  }
  return plan;
}

void Attention::begin_layer(int64_t layer) {
  prepare_layer(layer);
  begun_ = layer;
}

void Attention::prepare_layer(int64_t layer) {
  steps_.begin_layer(layer);
  const int kind = cache_.kind(layer);
  if (!exchanges_ || steps_.kind(kind).shape == steps_.kind(exchanged_kind_).shape) return;
  exchanged_kind_ = kind;
  exchange_.begin_pass(*exchange_group_, exchange_plans_[kind]);
}

void Attention::choose_routes(std::span<const int> servers, int64_t head_dim,
                              ExchangePlan& plan) const {
  std::vector<parallel::HeadRange> wanted;
  for (const HeadShard& heads : plan.wanted) wanted.push_back(heads.kv);
  const auto relayed = parallel::KvRoutes::by_servers(wanted, servers);
  const int64_t row_bytes = (cache_.shape().stores_values() ? 2 : 1) * wanted.front().size() *
                            head_dim * static_cast<int64_t>(size_of(groups_.wire));
  if (parallel::saved_s(relayed, plan.rows, static_cast<double>(row_bytes), groups_.link_costs) > 0)
    plan.routes = relayed;
}

void Attention::start_keys(const TensorView& k, const TensorView& v) {
  if (exchanges_) return exchange_.start_keys(k, v);
  keys_ = {k, v};
  const bool leave = begun_ >= 0 && by_levels_ && !shares_keys_ &&
                     paths_.at(steps_.window(begun_)) == levels_.get();
  if (!leave) return;
  store(begun_, k, v);
  stored_ = begun_;
  levels_->start_keys(begun_);
}

/// The rows of a layer's keys: its own, or those of the layer that it attends. These are needed
/// again only where some are not stored; then the layer that has them keeps a copy for the others.
HeadExchange::Keys Attention::rows_to_attend(int64_t layer, const HeadExchange::Keys& own) {
  if (!shares_keys_) return own;
  PlacedRows& placed = placed_rows_[cache_.kind(layer)];
  const bool all_stored = pass_.stores_all();
  if (!cache_.is_stored(layer)) return all_stored ? HeadExchange::Keys{} : placed.rows;
  if (all_stored || !cache_.is_shared(layer)) return own;
  const auto copy = [&](const TensorView& rows, device::Buffer& memory) {
    const TensorView made = memory.tensor(DType::fp32, {rows.rows(), rows.size(1), rows.size(2)});
    steps_.copy(rows, made);
    return made;
  };
  placed.rows = {copy(own.k, placed.k_memory), copy(own.v, placed.v_memory)};
  return own;
}

void Attention::store(int64_t layer, const TensorView& k, const TensorView& v) {
  if (!cache_.is_stored(layer)) return;
  int64_t slot = 0;
  for (const RowRange& rows : pass_.stored()) {
    store_rows(layer, rows, k, v, slot);
    slot += rows.size();
  }
}

void Attention::store_rows(int64_t layer, RowRange rows, const TensorView& k, const TensorView& v,
                           int64_t first_slot) {
  const auto of = [&](const TensorView& x) {
    return x ? x.slice_rows(rows.begin, rows.size()) : x;
  };
  const std::span<const int64_t> slots = pass_.slots(cache_.retention(layer));
  steps_.store(layer, of(k), of(v), slots.subspan(first_slot, rows.size()));
}

void Attention::attend(int64_t layer, const LayerRows& x, const TensorView& out) {
  const kernels::Window window = steps_.window(layer);
  const int64_t sent_before = steps_.ring().traffic().bytes;
  const Partial to = steps_.results(out);
  paths_.at(window)->run(layer, x, to);
  steps_.add_sinks(layer, to);
  if (window > 0 && pass_.size() > 1 && !invariant_)
    window_totals_ += {steps_.ring().traffic().bytes - sent_before, bytes_without_window_};
  if (by_levels_) levels_->weigh(layer, x.q, to);
}

void Attention::store_and_attend(int64_t layer, const LayerRows& x, const TensorView& out) {
  if (stored_ != layer) store(layer, x.k, x.v);
  stored_ = -1;
  attend(layer, x, out);
}

int64_t Attention::most_rows() const {
  int64_t most = 0;
  for (int index = 0; index < pass_.size(); ++index) most = std::max(most, pass_.count(index));
  return most;
}

void Attention::run_fresh(int64_t layer, const kernels::RotateAndStoreArgs& heads,
                          const TensorView& out) {
  PECIA_CHECK(takes_fresh_heads(), "heads of rows that are not all stored here");
  prepare_layer(layer);
  begun_ = -1;
  steps_.rotate_and_store(layer, heads, pass_.slots(cache_.retention(layer)));
  attend(layer, {heads.q_out, heads.k, heads.v}, out);  // keys travel from the cache
  copies_.send(layer);
}

void Attention::run(int64_t layer, const TensorView& q, const TensorView& out) {
  prepare_layer(layer);
  begun_ = -1;
  if (exchanges_) {
    run_exchanged(layer, q, out);
  } else {
    const HeadExchange::Keys keys = rows_to_attend(layer, keys_);
    store_and_attend(layer, {q, keys.k, keys.v}, out);
  }
  copies_.send(layer);
}

void Attention::run_block(int64_t layer, int block, const LayerRows& x, const TensorView& out) {
  PECIA_CHECK(runs_blocks_, "a block of rows of a pass that is attended at once");
  if (block == 0) prepare_layer(layer);
  begun_ = -1;
  const RowRange rows = rows_.blocks[block];
  if (cache_.is_stored(layer)) store_rows(layer, rows, x.k, x.v, rows.begin);
  row_parts_.run(layer, static_cast<size_t>(block), x.q, out);
  if (block + 1 == std::ssize(rows_.blocks)) copies_.send(layer);
}

void Attention::run_exchanged(int64_t layer, const TensorView& q, const TensorView& out) {
  const TensorView queries = exchange_.start_queries(q);
  const TensorView attended =
      attended_.tensor(DType::fp32, {queries.rows(), queries.size(1), steps_.value_dim()});
  const bool has_keys = cache_.is_stored(layer);
  const HeadExchange::Keys keys =
      rows_to_attend(layer, has_keys ? exchange_.wait_keys() : HeadExchange::Keys{});
  if (!row_parts_.empty()) store(layer, keys.k, keys.v);
  for (size_t part = 0; part < parts_.size(); ++part) {
    for (const int distance : parts_[part].distances) exchange_.wait_queries(distance);
    if (row_parts_.empty())
      store_and_attend(layer, {queries, keys.k, keys.v}, attended);
    else
      row_parts_.run(layer, part, queries, attended);
    for (const int distance : parts_[part].distances) exchange_.start_outputs(distance, attended);
  }
  exchange_.wait_outputs(attended, out);
}

}  // namespace pecia::attention
