// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The map of all sequences of a replica, and the slots of this rank's cache that hold its own part
/// of them. The two change together.

#include <optional>
#include <vector>

#include "lib/model/attention/kv_cache.hpp"
#include "lib/model/attention/recent_slots.hpp"
#include "lib/ranks/parallel/kv_map.hpp"

namespace pecia::attention {

/// The tokens of a sequence that a rank holds. Token i of all ranges is in slot i of all slots.
struct HeldTokens {
  std::vector<parallel::StridedRange> positions;
  std::vector<parallel::SlotRange> slots;
};

class KvLedger {
 public:
  /// `instance` is this rank's instance, one of `instances`. `virtual_ranks` has the same meaning
  /// as for KvMap. `cache` must outlive this object. Nothing else may reserve slots in it.
  /// Layers that keep recent tokens go with one virtual rank, and with tokens that stay where they
  /// are cached.
  KvLedger(KvCache& cache, int instances, int instance, int virtual_ranks = 1);
  KvLedger(const KvLedger&) = delete;
  KvLedger& operator=(const KvLedger&) = delete;

  /// Does KvMap::add and reserves reserved[instance] slots.
  void add(parallel::SequenceId sequence, const std::vector<int64_t>& reserved,
           std::optional<parallel::SequenceId> parent = {});
  void remove(parallel::SequenceId sequence);
  /// Does KvMap::append. Where a placement takes tokens away from this instance, they stay in its
  /// slots until `settle`, since they travel from there.
  void append(const parallel::PassSequence& rows, const parallel::Team& team,
              const parallel::Placement* placement = nullptr);
  /// Does KvMap::shorten. Call it before the `settle` that follows the pass of these tokens.
  void shorten(parallel::SequenceId sequence, int64_t length);
  /// Gives back the slots of tokens that have left, and the slots of tokens that layers with a
  /// window read no more. Call it when the pass has run. Builds without NDEBUG also `verify`.
  void settle();
  /// Throws InvalidArgument unless each slot is free or has one owner, sequences have the slots that
  /// the map reserves for them, and the map is right (KvMap::verify).
  void verify() const;
  /// Gives a sequence that is in the cache reserved[instance] slots.
  void resize(parallel::SequenceId sequence, const std::vector<int64_t>& reserved);
  /// Does KvMap::park, and gives back the sequence's slots, or takes slots for it again. What was in
  /// them is lost (KvParking).
  void park(parallel::SequenceId sequence);
  void bring_back(parallel::SequenceId sequence, const std::vector<int64_t>& reserved);
  /// Does KvMap::set_state. This instance reserves what the state says.
  void set_state(parallel::SequenceId sequence, const parallel::SequenceState& state);

  const parallel::KvMap& map() const { return map_; }
  int instance() const { return instance_; }

  /// Returns the slots of the tokens that a virtual rank of this instance holds, and then of the
  /// tokens that it will hold.
  const std::vector<parallel::SlotRange>& slots(parallel::SequenceId sequence,
                                                int virtual_rank = 0) const {
    return cache_.slots(sequence, virtual_rank);
  }
  /// Returns the next `count` slots, after the slots of the tokens that it holds.
  std::vector<parallel::SlotRange> next_slots(parallel::SequenceId sequence, int64_t count,
                                              int virtual_rank = 0) const {
    return part_of(slots(sequence, virtual_rank), map_.held(sequence, instance_, virtual_rank),
                   count);
  }
  /// Counts the sequence's first tokens that an instance holds, but not in layers that keep recent
  /// tokens. Where all layers are asked about, it is 0.
  int64_t evicted(Retention retention, parallel::SequenceId sequence, int instance) const {
    return retention == Retention::recent ? recent_->evicted(sequence, instance) : 0;
  }
  /// Returns the slots of the tokens after those that are gone here, and then of the tokens that
  /// this instance will hold, as far as there are slots for them.
  std::vector<parallel::SlotRange> kept_slots(Retention retention,
                                              parallel::SequenceId sequence) const {
    return retention == Retention::recent ? recent_->slots(sequence) : slots(sequence);
  }
  /// Returns next_slots in layers that keep recent tokens. The slots are taken by this call.
  std::vector<parallel::SlotRange> next_recent_slots(parallel::SequenceId sequence, int64_t count) {
    return recent_->extend(sequence, map_.held(sequence, instance_), count);
  }
  /// The slots of layers that keep recent tokens; null if there are none.
  const RecentSlots* recent() const { return recent_ ? &*recent_ : nullptr; }

  /// Returns the sequence's own tokens that this rank holds, without its parent's. The tokens of
  /// each virtual rank follow the tokens of the one before.
  HeldTokens held(parallel::SequenceId sequence) const;
  /// The same in layers that keep recent tokens.
  HeldTokens held_recently(parallel::SequenceId sequence) const;

 private:
  KvCache& cache_;
  parallel::KvMap map_;
  int instance_;
  std::vector<parallel::SequenceId> left_;   ///< sequences whose tokens have left this instance
  std::vector<parallel::SequenceId> grown_;  ///< since the last call of `settle`
  std::optional<RecentSlots> recent_;
};

}  // namespace pecia::attention
