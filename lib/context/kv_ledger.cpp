// SPDX-License-Identifier: Apache-2.0
#include "lib/context/kv_ledger.hpp"

namespace pecia::context {

void KvLedger::add(parallel::SequenceId sequence, const std::vector<int64_t>& reserved,
                   std::optional<parallel::SequenceId> parent) {
  PECIA_CHECK(static_cast<size_t>(instance_) < reserved.size(), "instance {} of {}", instance_,
              reserved.size());
  cache_.reserve(sequence, reserved[instance_], map_.virtual_ranks());
  map_.add(sequence, reserved, parent);
}

void KvLedger::remove(parallel::SequenceId sequence) {
  map_.remove(sequence);
  cache_.release(sequence);
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

}  // namespace pecia::context
