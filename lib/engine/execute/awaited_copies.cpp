// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/awaited_copies.hpp"

#include <set>

namespace pecia::execute {

std::vector<parallel::SequenceId> awaited_copies(const schedule::Plan& plan,
                                                 const parallel::KvMap& map) {
  std::set<parallel::SequenceId> awaited;
  for (const schedule::NewSequence& added : plan.added)
    if (added.state.parent != schedule::NewSequence::no_parent) awaited.insert(added.state.parent);
  for (const schedule::PlanItem& item : plan.items) {
    const parallel::SequenceId sequence = item.rows.sequence;
    awaited.insert(sequence);
    if (!map.contains(sequence)) continue;  // it is among those that are added
    if (const auto parent = map.parent(sequence)) awaited.insert(*parent);
  }
  return {awaited.begin(), awaited.end()};
}

}  // namespace pecia::execute
