// SPDX-License-Identifier: Apache-2.0
/// Reads keys and values that an earlier start has kept, and finds those that this one could keep.

#include <algorithm>
#include <set>

#include "lib/parallel/virtual_ranks.hpp"
#include "lib/schedule/scheduler_state.hpp"

namespace pecia::schedule {

/// Restored tokens end at a multiple of this. They are shared out like a chunk of whole units:
/// every rank gets two pieces of each unit, so restoring takes the same slots as computing. Where
/// results must be the same in any batch, a prompt is always cut at the same tokens.
int64_t Scheduler::restore_unit() const {
  return limits_.layout_invariant ? limits_.max_batch_tokens : limits_.chunk_unit();
}

/// Plans a pass that reads the next chunk of the first sequence with saved keys and values.
bool Scheduler::restore(Plan& plan, double now) {
  const auto found = std::find_if(running_.begin(), running_.end(), [](const Running& running) {
    return running.fed < running.restore_end;
  });
  if (found == running_.end()) return false;
  Running& running = *found;
  const int64_t whole =
      std::max(limits_.batch_tokens() / restore_unit(), int64_t{1}) * restore_unit();
  const int64_t count = std::min(running.restore_end - running.fed, whole);
  PlanItem item;
  item.rows = {running.sequence, map_.length(running.sequence), count,
               parallel::PassSequence::balanced, virtual_ranks_of_rows()};
  item.tokens.assign(running.feed.begin() + running.fed,
                     running.feed.begin() + running.fed + count);
  item.prompt_end = running.answer_begin;
  item.longest = running.family->longest;
  // If the save is damaged, the pass is computed in this way.
  parallel::Team& team = plan.teams.front();
  if (limits_.ring_size > 1) team.ring = limits_.ring.value_or(parallel::Ring::pass_kv);
  team.sharding = limits_.modes.sharding(count, true);
  plan.restore = running.family->request.saved.folder;
  note_begin(running, now);
  cache(running, item, team);
  plan.items.push_back(std::move(item));
  return true;
}

/// Notes the item's tokens as cached, which holds when the pass has run.
void Scheduler::cache(Running& running, const PlanItem& item, const parallel::Team& team) {
  const parallel::Placement placement{item.rows.sequence, item.kept, item.gathers};
  map_.append(item.rows, team, item.kept.empty() ? nullptr : &placement);
  running.in_pass = item.rows.count;
  if (running.is_branch()) {
    if (keeps_tokens(running.family->request))
      running.own.insert(running.own.end(), item.tokens.begin(), item.tokens.end());
    return;
  }
  std::vector<int32_t>& cached = running.family->cached;
  cached.insert(cached.end(), item.tokens.begin(), item.tokens.end());
}

/// What the pass used is free for the next one.
void Scheduler::end_pass(const Plan& plan) {
  under_way_.erase(plan.number);
  for (const parallel::Team& team : plan.teams)
    for (const int32_t instance : team.instances) doing_[instance] = Doing::nothing;
}

/// Gives up a save that one rank could not read; its tokens are computed.
void Scheduler::note_restored(const Plan&, const std::vector<Outcome>& outcomes, Running& running) {
  const bool restored = std::all_of(outcomes.begin(), outcomes.end(),
                                    [](const Outcome& outcome) { return outcome.kv.done != 0; });
  if (restored) return;
  running.restore_end = 0;
  running.family->request.saved = {};
}

std::vector<KeepableKv> Scheduler::keepable() const {
  std::vector<KeepableKv> found;
  std::set<const Family*> seen;
  const auto add = [&](const Family& family, int64_t sequence) {
    if (!seen.insert(&family).second || !map_.contains(sequence)) return;
    PECIA_CHECK(map_.length(sequence) == std::ssize(family.cached),
                "sequence {} has {} tokens cached, {} are known", sequence, map_.length(sequence),
                family.cached.size());
    const int64_t row = kept_row(family.request);
    if (row == Turn::no_row) return;  // all of its turns have ended
    const SavedKv& saved = family.request.saved;
    // What was kept under another row goes when that one has ended.
    const int64_t begin = family.request.is_joined() && saved.row != row ? 0 : saved.tokens;
    if (std::ssize(family.cached) <= begin) return;
    found.push_back(
        {row, sequence, family.cached, begin, family.computed_s, map_.holders(sequence)});
  };
  for (const Running& running : running_)
    add(*running.family, running.family->is_fork() ? running.family->stem : running.sequence);
  for (const auto& fork : forks_) add(*fork, fork->stem);
  return found;
}

}  // namespace pecia::schedule
