// SPDX-License-Identifier: Apache-2.0
/// Where a sequence's keys lie as its team grows, is helped, and shrinks.
/// Source: LoongServe (elastic scaling plan; proactive scale-down).

#include <algorithm>
#include <set>

#include "lib/schedule/elastic_degree.hpp"
#include "lib/schedule/scheduler_parts.hpp"

namespace pecia::schedule {

/// Lets the team that makes these sequences' tokens have further instances, where these have no work
/// and nothing waits that could begin there (scale-up). Some of the sequences then have their free
/// slots there, and so their next tokens. Branches of forks stay, as their slots are promised to the
/// branches after them.
void Scheduler::grow(const Selection& ready, std::set<int32_t>& team) {
  if (!state_.times.teams || !state_.forks.empty()) return;
  const Room used = admission_.room(state_);
  std::vector<int32_t> idle;
  for (int32_t instance = 0; instance < state_.limits.ring_size; ++instance)
    if (used[instance].idle && used[instance].sequences == 0 &&
        std::ssize(team) + std::ssize(idle) < state_.limits.max_instances)
      idle.push_back(instance);
  int64_t context = 0;
  for (const ActiveSequence* running : ready) context += state_.map.length(running->id);
  const auto degree = static_cast<int>(team.size());
  const GrownTeam grown =
      grown_team(*state_.times.teams, degree, degree + static_cast<int>(idle.size()),
                 std::ssize(ready), context);
  if (grown.degree == degree) return;
  decisions_.push_back({"elastic_growth",
                        {{"instances", degree},
                         {"candidates", degree + static_cast<double>(idle.size())},
                         {"grown", grown.degree},
                         {"seconds", grown.seconds},
                         {"before_s", grown.before_s}},
                        "grown"});
  idle.resize(grown.degree - degree);

  // Each new instance gets the share of a master, of the sequences with most left to answer.
  const auto unused = [&](const ActiveSequence* running) { return movable_slots(*running); };
  Selection movable;
  for (ActiveSequence* running : ready)
    if (!running->origin->is_fork() && unused(running) > 0) movable.push_back(running);
  std::ranges::stable_sort(movable, std::ranges::greater(), unused);
  const size_t share = (ready.size() + grown.masters - 1) / grown.masters;
  auto next = movable.begin();
  for (const int32_t instance : idle) {
    int64_t free = used[instance].free_slots;
    for (size_t moved = 0; moved < share && next != movable.end(); ++next) {
      if (unused(*next) > free) continue;
      free -= unused(*next);
      grow_on(**next, instance);
      team.insert(instance);
      ++moved;
    }
  }
  scale_ups_ += std::ssize(team) > degree;
}

/// Free slots of the sequence on instances that hold some of it. These stay in its team, and hear
/// with its next pass that the slots are no longer theirs.
int64_t Scheduler::movable_slots(const ActiveSequence& running) const {
  int64_t slots = 0;
  for (const int32_t instance : running.instances)
    if (const int64_t held = state_.map.held(running.id, instance); held > 0)
      slots += state_.map.reserved(running.id, instance) - held;
  return slots;
}

/// Moves these slots to a further instance.
void Scheduler::grow_on(ActiveSequence& running, int32_t instance) {
  state_.map.set_reserved(running.id, instance, movable_slots(running));
  for (const int32_t old : running.instances)
    if (const int64_t held = state_.map.held(running.id, old); held > 0)
      state_.map.set_reserved(running.id, old, held);
  running.instances = state_.instances_of(running.id);
  running.changed = true;
}

/// Whether the team that reads the sequence's prompt answers sooner together than `holders` of it
/// do, and nothing else is there that its instances could do.
bool Scheduler::answers_together(const ActiveSequence& running, const parallel::Team& team,
                                 int holders) {
  if (!state_.times.teams || waits_least() || !state_.waiting.empty() ||
      running.origin->is_fork() || !running.samples || team.workers() <= holders)
    return false;
  const int64_t left = std::ssize(running.feed) - running.fed;
  AnswersAhead answers{.context = state_.map.length(running.id) + left};
  for (const ActiveSequence& other : state_.active) {
    if (&other == &running) continue;
    const auto in_team = std::ranges::count_if(
        other.instances, [&](int32_t instance) { return team.index_of(instance).has_value(); });
    if (in_team == std::ssize(other.instances)) {
      ++answers.others;
      answers.other_context += state_.map.length(other.id);
    } else if (in_team > 0 || !other.begun || other.feeding()) {
      return false;
    }
  }
  const ChosenDegree choice =
      answering_degree(*state_.times.teams, holders, team.workers(), answers);
  decisions_.push_back({"elastic_answer",
                        {{"sequence", static_cast<double>(running.id)},
                         {"holders", holders},
                         {"readers", team.workers()},
                         {"seconds", choice.seconds},
                         {"holders_s", choice.holders_s}},
                        choice.degree > holders ? "together" : "holders"});
  return choice.degree > holders;
}

/// Lets instances that help to read a prompt keep an even share of it, where the answer is made
/// sooner by all of them together. Returns whether it is.
bool Scheduler::spread(ActiveSequence& running, const parallel::Team& team) {
  const auto holders = static_cast<int>(running.instances.size());
  if (!answers_together(running, team, holders)) return false;
  const int64_t sequence = running.id;
  int64_t slots = 0;
  for (const int32_t instance : running.instances) slots += state_.map.reserved(sequence, instance);
  const int64_t share = (slots + team.workers() - 1) / team.workers();
  const Slots free = state_.free_slots();
  for (const int32_t helper : team.instances) {
    if (std::ranges::count(running.instances, helper) > 0) continue;
    int64_t wanted = std::min(share, free[helper]), moved = 0;
    for (const int32_t holder : running.instances) {
      const int64_t kept = std::max(share, state_.map.held(sequence, holder));
      const int64_t spare =
          std::clamp<int64_t>(state_.map.reserved(sequence, holder) - kept, 0, wanted - moved);
      state_.map.set_reserved(sequence, holder, state_.map.reserved(sequence, holder) - spare);
      moved += spare;
    }
    if (moved > 0) state_.map.set_reserved(sequence, helper, moved);
  }
  running.instances = state_.instances_of(sequence);
  running.changed = true;
  return true;
}

/// Lets one instance keep the whole sequence from the last chunk of a prompt on, if it has the room:
/// the one that holds most of it. All its keys pass by in that ring anyway. Then the answer needs
/// no messages, and the other instances are free. Where they would have nothing to do, and the answer
/// would take longer, the sequence stays with all. Branches of forks stay, as in grow().
void Scheduler::gather(ActiveSequence& running, PlanItem& item, const parallel::Team& team) {
  const int64_t sequence = running.id;
  if (running.instances.size() == 1 || running.origin->is_fork() ||
      state_.limits.min_instances > 1 || answers_together(running, team, 1))
    return;
  int64_t slots = 0;
  for (const int32_t instance : running.instances) slots += state_.map.reserved(sequence, instance);
  const Slots free = state_.free_slots();
  std::optional<int32_t> keeper;
  for (const int32_t instance : running.instances)
    if (free[instance] + state_.map.reserved(sequence, instance) >= slots &&
        (!keeper || state_.map.held(sequence, instance) > state_.map.held(sequence, *keeper)))
      keeper = instance;
  if (!keeper) return;
  state_.map.set_reserved(sequence, *keeper, slots);
  running.changed = true;
  item.kept = {{*keeper, state_.map.length(sequence) - state_.map.held(sequence, *keeper) +
                             item.rows.count}};
  item.gathers = 1;
}

/// Gives the chunk's tokens to the instances in proportion to the room that the sequence has there.
void Scheduler::keep_by_room(PlanItem& item, const parallel::Team& team) const {
  if (team.size() == 1) return;
  Slots room;
  for (const int32_t instance : team.instances)
    room.push_back(state_.map.reserved(item.rows.sequence, instance) -
                   state_.map.held(item.rows.sequence, instance));
  const Slots shares = shares_by_free_slots(item.rows.count, room);
  for (size_t i = 0; i < shares.size(); ++i)
    if (shares[i] > 0) item.kept.push_back({team.instances[i], shares[i]});
}

}  // namespace pecia::schedule
