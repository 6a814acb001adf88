// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The map of all sequences of a replica, and the slots of this rank's cache that hold its own part
/// of them. The two change together.

#include <optional>
#include <vector>

#include "lib/context/kv_cache.hpp"
#include "lib/parallel/kv_map.hpp"

namespace pecia::context {

/// The tokens of a sequence that a rank holds. Token i of all ranges is in slot i of all slots.
struct HeldTokens {
  std::vector<parallel::StridedRange> positions;
  std::vector<parallel::SlotRange> slots;
};

class KvLedger {
 public:
  /// `instance` is this rank's instance, one of `instances`. `virtual_ranks` has the same meaning
  /// as for KvMap. `cache` must outlive this object. Nothing else may reserve slots in it.
  KvLedger(KvCache& cache, int instances, int instance, int virtual_ranks = 1)
      : cache_(cache), map_(instances, virtual_ranks), instance_(instance) {}
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
  /// Gives back the slots of tokens that have left. Call it when the pass has run. Builds without
  /// NDEBUG also verify the map, and that the cache has the slots that the map reserves.
  void settle();
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
  /// Returns the sequence's own tokens that this rank holds, without its parent's. The tokens of
  /// each virtual rank follow the tokens of the one before.
  HeldTokens held(parallel::SequenceId sequence) const;

 private:
  void verify() const;

  KvCache& cache_;
  parallel::KvMap map_;
  int instance_;
  std::vector<parallel::SequenceId> left_;  ///< sequences whose tokens have left this instance
};

}  // namespace pecia::context
