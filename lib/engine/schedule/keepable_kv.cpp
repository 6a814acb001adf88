// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/keepable_kv.hpp"

#include <algorithm>
#include <set>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {
namespace {

/// Whether ranks may have the keys parked: also where they have not heard yet that these come back.
bool may_be_parked(const SchedulerState& state, int64_t sequence) {
  if (state.map.is_parked(sequence)) return true;
  if (!state.limits.elastic)
    return std::ranges::count(state.news.returned, sequence, &ResizedSequence::sequence) > 0;
  const auto came_back = [&](const ActiveSequence& of) {
    return of.came_back && (of.id == sequence || of.origin->prefix == sequence);
  };
  return std::ranges::any_of(state.active, came_back) ||
         std::ranges::any_of(state.parked, came_back);
}

}  // namespace

std::vector<KeepableKv> keepable_kv(const SchedulerState& state) {
  std::vector<KeepableKv> found;
  std::set<const RequestState*> seen;
  const auto add = [&](const RequestState& of, int64_t sequence, int64_t slots) {
    if (!seen.insert(&of).second || !state.map.contains(sequence)) return;
    PECIA_CHECK(state.map.length(sequence) == std::ssize(of.cached),
                "sequence {} has {} tokens cached, {} are known", sequence,
                state.map.length(sequence), of.cached.size());
    if (needs_all_outputs(of.request)) return;  // which are computed with the keys
    const int64_t row = kept_row(of.request);
    if (row == batch::Turn::no_row) return;  // all of its turns have ended
    const batch::SavedKv& saved = of.request.saved;
    // What was kept under another row goes when that one has ended.
    const int64_t begin = of.request.is_joined() && saved.row != row ? 0 : saved.tokens;
    if (std::ssize(of.cached) <= begin) return;
    found.push_back({row, sequence, of.cached, begin, of.computed_s, state.map.holders(sequence)});
    if (may_be_parked(state, sequence))
      found.back().reserved =
          state.limits.elastic ? state.held(sequence) : Slots(state.limits.ring_size, slots);
  };
  const auto add_prefix = [&](const RequestState& fork) {
    add(fork, fork.prefix, state.needs.of_prefix(fork.request));
  };
  for (const auto* const sequences : {&state.active, &state.parked})
    for (const ActiveSequence& sequence : *sequences)
      if (sequence.origin->is_fork())
        add_prefix(*sequence.origin);
      else
        add(*sequence.origin, sequence.id, sequence.base + state.needs.of_generated(sequence.room));
  for (const auto& fork : state.forks) add_prefix(*fork);
  return found;
}

}  // namespace pecia::schedule
