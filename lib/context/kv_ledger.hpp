// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The map of all sequences of a replica, and in which slots of this rank's cache its own part of
/// them is. The two change together.

#include <optional>
#include <vector>

#include "lib/context/kv_cache.hpp"
#include "lib/parallel/kv_map.hpp"

namespace pecia::context {

/// Tokens of a sequence that a rank holds: token i of all ranges is in slot i of all slots.
struct HeldTokens {
  std::vector<parallel::StridedRange> positions;
  std::vector<parallel::SlotRange> slots;
};

class KvLedger {
 public:
  /// `instance`: this rank's, of so many. `virtual_ranks`: as KvMap's. `cache` outlives this object
  /// and is reserved by nobody else.
  KvLedger(KvCache& cache, int instances, int instance, int virtual_ranks = 1)
      : cache_(cache), map_(instances, virtual_ranks), instance_(instance) {}
  KvLedger(const KvLedger&) = delete;
  KvLedger& operator=(const KvLedger&) = delete;

  /// KvMap::add, with as many slots as reserved[instance].
  void add(parallel::SequenceId sequence, const std::vector<int64_t>& reserved,
           std::optional<parallel::SequenceId> parent = {});
  void remove(parallel::SequenceId sequence);
  void append(const parallel::PassSequence& rows, const parallel::Team& team) {
    map_.append(rows, team);
  }

  const parallel::KvMap& map() const { return map_; }
  int instance() const { return instance_; }

  /// Slots of what a virtual rank of this instance holds, and then of what it will.
  const std::vector<parallel::SlotRange>& slots(parallel::SequenceId sequence,
                                                int virtual_rank = 0) const {
    return cache_.slots(sequence, virtual_rank);
  }
  /// The next `count` of them, after what it holds.
  std::vector<parallel::SlotRange> next_slots(parallel::SequenceId sequence, int64_t count,
                                              int virtual_rank = 0) const {
    return part_of(slots(sequence, virtual_rank), map_.held(sequence, instance_, virtual_rank),
                   count);
  }
  /// What this rank holds of the sequence's own tokens, without its parent's; one virtual rank's
  /// tokens after the other's.
  HeldTokens held(parallel::SequenceId sequence) const;

 private:
  KvCache& cache_;
  parallel::KvMap map_;
  int instance_;
};

}  // namespace pecia::context
