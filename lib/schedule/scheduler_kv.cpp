// SPDX-License-Identifier: Apache-2.0
/// Reads keys and values that an earlier start has kept, and finds those that this one could keep.

#include <algorithm>
#include <set>

#include "lib/parallel/virtual_ranks.hpp"
#include "lib/schedule/scheduler_parts.hpp"

namespace pecia::schedule {

/// Plans a pass that reads the next chunk of the first sequence with saved keys and values.
bool Scheduler::restore(Plan& plan, double now) {
  const auto found =
      std::find_if(state_.active.begin(), state_.active.end(),
                   [](const ActiveSequence& running) { return running.fed < running.restore_end; });
  if (found == state_.active.end()) return false;
  ActiveSequence& running = *found;
  const int64_t whole =
      std::max(state_.limits.batch_tokens() / state_.limits.restore_unit(), int64_t{1}) *
      state_.limits.restore_unit();
  const int64_t count = std::min(running.restore_end - running.fed, whole);
  PlanItem item;
  item.rows = {running.id, state_.map.length(running.id), count, parallel::PassSequence::balanced,
               virtual_ranks_of_rows()};
  item.tokens.assign(running.feed.begin() + running.fed,
                     running.feed.begin() + running.fed + count);
  item.prompt_end = running.answer_begin;
  item.longest = running.origin->longest;
  // If the save is damaged, the pass is computed in this way.
  parallel::Team& team = plan.teams.front();
  if (state_.limits.ring_size > 1) team.ring = state_.limits.ring.value_or(parallel::Ring::pass_kv);
  team.sharding = state_.limits.modes.sharding(count, true);
  plan.restore = running.origin->request.saved.folder;
  note_begin(running, now);
  state_.cache(running, item, team);
  plan.items.push_back(std::move(item));
  return true;
}

std::vector<KeepableKv> Scheduler::keepable() const {
  std::vector<KeepableKv> found;
  std::set<const RequestState*> seen;
  const auto add = [&](const RequestState& family, int64_t sequence) {
    if (!seen.insert(&family).second || !state_.map.contains(sequence)) return;
    PECIA_CHECK(state_.map.length(sequence) == std::ssize(family.cached),
                "sequence {} has {} tokens cached, {} are known", sequence,
                state_.map.length(sequence), family.cached.size());
    const int64_t row = kept_row(family.request);
    if (row == Turn::no_row) return;  // all of its turns have ended
    const SavedKv& saved = family.request.saved;
    // What was kept under another row goes when that one has ended.
    const int64_t begin = family.request.is_joined() && saved.row != row ? 0 : saved.tokens;
    if (std::ssize(family.cached) <= begin) return;
    found.push_back(
        {row, sequence, family.cached, begin, family.computed_s, state_.map.holders(sequence)});
  };
  for (const ActiveSequence& running : state_.active)
    add(*running.origin, running.origin->is_fork() ? running.origin->prefix : running.id);
  for (const auto& fork : state_.forks) add(*fork, fork->prefix);
  return found;
}

}  // namespace pecia::schedule
