// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/kv_ledger.hpp"

#include "lib/ranks/parallel/halo.hpp"

namespace pecia::attention {

KvLedger::KvLedger(KvCache& cache, int instances, int instance, int virtual_ranks)
    : cache_(cache), map_(instances, virtual_ranks), instance_(instance) {
  const RecentLayers& recent = cache.recent();
  if (!recent.any()) return;
  PECIA_CHECK(virtual_ranks == 1, "{} virtual ranks, and layers that keep recent tokens",
              virtual_ranks);
  recent_.emplace(recent, instances, instance);
}

void KvLedger::add(parallel::SequenceId sequence, const std::vector<int64_t>& reserved,
                   std::optional<parallel::SequenceId> parent) {
  set_state(sequence, {parent.value_or(parallel::SequenceState::no_parent), 0, reserved, {}});
}

void KvLedger::remove(parallel::SequenceId sequence) {
  if (!map_.is_parked(sequence)) cache_.release(sequence);
  map_.remove(sequence);
  if (recent_) recent_->remove(sequence);
}

void KvLedger::resize(parallel::SequenceId sequence, const std::vector<int64_t>& reserved) {
  cache_.resize(sequence, reserved.at(instance_));
  for (int instance = 0; instance < map_.instances(); ++instance)
    map_.set_reserved(sequence, instance, reserved.at(instance));
}

void KvLedger::park(parallel::SequenceId sequence) {
  map_.park(sequence);
  cache_.release(sequence);
  if (recent_) recent_->remove(sequence);
}

void KvLedger::bring_back(parallel::SequenceId sequence, const std::vector<int64_t>& reserved) {
  cache_.reserve(sequence, reserved.at(instance_), map_.virtual_ranks());
  map_.bring_back(sequence, reserved);
  if (recent_) recent_->take_again(map_, sequence);
}

void KvLedger::append(const parallel::PassSequence& rows, const parallel::Team& team,
                      const parallel::Placement* placement) {
  PECIA_CHECK(!recent_ || placement == nullptr,
              "tokens of sequence {} are placed, and layers keep recent ones", rows.sequence);
  map_.append(rows, team, placement);
  if (recent_) grown_.push_back(rows.sequence);
  if (placement != nullptr && placement->gathers != 0 && !placement->has_share(instance_))
    left_.push_back(rows.sequence);
}

void KvLedger::shorten(parallel::SequenceId sequence, int64_t length) {
  map_.shorten(sequence, length);
  if (recent_) recent_->shorten(map_, sequence);
}

void KvLedger::settle() {
  for (const parallel::SequenceId sequence : left_) cache_.resize(sequence, 0);
  left_.clear();
  for (const parallel::SequenceId sequence : grown_)
    if (map_.contains(sequence)) recent_->forget(map_, sequence);
  grown_.clear();
#ifndef NDEBUG
  verify();
#endif
}

void KvLedger::verify() const {
  map_.verify();
  PECIA_CHECK(cache_.capacity() - cache_.free_tokens() == map_.total_reserved(instance_),
              "{} of {} slots are free, and {} are reserved", cache_.free_tokens(),
              cache_.capacity(), map_.total_reserved(instance_));
  cache_.verify();
  if (recent_) recent_->verify(map_);
}

void KvLedger::set_state(parallel::SequenceId sequence, const parallel::SequenceState& state) {
  PECIA_CHECK(static_cast<size_t>(instance_) < state.reserved.size(), "instance {} of {}",
              instance_, state.reserved.size());
  if (map_.contains(sequence))
    cache_.resize(sequence, state.reserved[instance_]);
  else
    cache_.reserve(sequence, state.reserved[instance_], map_.virtual_ranks());
  map_.set_state(sequence, state);
  if (recent_ && !state.held.empty()) recent_->take_again(map_, sequence);
}

HeldTokens KvLedger::held(parallel::SequenceId sequence) const {
  HeldTokens all;
  for (int virtual_rank = 0; virtual_rank < map_.virtual_ranks(); ++virtual_rank) {
    const auto& positions = map_.ranges(sequence, instance_, virtual_rank);
    const auto slots_held =
        part_of(slots(sequence, virtual_rank), 0, map_.held(sequence, instance_, virtual_rank));
    all.positions.insert(all.positions.end(), positions.begin(), positions.end());
    all.slots.insert(all.slots.end(), slots_held.begin(), slots_held.end());
  }
  return all;
}

HeldTokens KvLedger::held_recently(parallel::SequenceId sequence) const {
  const int64_t evicted = recent_->evicted(sequence, instance_);
  const int64_t kept = map_.held(sequence, instance_) - evicted;
  if (kept == 0) return {};
  return {positions_of({{evicted, kept}}, map_.ranges(sequence, instance_)),
          part_of(recent_->slots(sequence), 0, kept)};
}

}  // namespace pecia::attention
