// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/keepable_kv.hpp"

#include <set>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {

std::vector<KeepableKv> keepable_kv(const SchedulerState& state) {
  std::vector<KeepableKv> found;
  std::set<const RequestState*> seen;
  const auto add = [&](const RequestState& of, int64_t sequence) {
    if (!seen.insert(&of).second || !state.map.contains(sequence)) return;
    if (state.map.is_parked(sequence)) return;  // parked keys are not kept
    PECIA_CHECK(state.map.length(sequence) == std::ssize(of.cached),
                "sequence {} has {} tokens cached, {} are known", sequence,
                state.map.length(sequence), of.cached.size());
    const int64_t row = kept_row(of.request);
    if (row == batch::Turn::no_row) return;  // all of its turns have ended
    const batch::SavedKv& saved = of.request.saved;
    // What was kept under another row goes when that one has ended.
    const int64_t begin = of.request.is_joined() && saved.row != row ? 0 : saved.tokens;
    if (std::ssize(of.cached) <= begin) return;
    found.push_back({row, sequence, of.cached, begin, of.computed_s, state.map.holders(sequence)});
  };
  for (const ActiveSequence& sequence : state.active)
    add(*sequence.origin, sequence.origin->is_fork() ? sequence.origin->prefix : sequence.id);
  for (const auto& fork : state.forks) add(*fork, fork->prefix);
  return found;
}

}  // namespace pecia::schedule
