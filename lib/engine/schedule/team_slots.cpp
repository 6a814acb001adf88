// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/team_slots.hpp"

#include <algorithm>
#include <optional>

#include "lib/engine/schedule/elastic_degree.hpp"

namespace pecia::schedule {
namespace {

/// Free slots of the sequence on instances that hold some of it. These stay in its team, and hear
/// with its next pass that the slots are no longer theirs.
int64_t movable_slots(const SchedulerState& state, const ActiveSequence& sequence) {
  int64_t slots = 0;
  for (const int32_t instance : sequence.instances)
    if (const int64_t held = state.map.held(sequence.id, instance); held > 0)
      slots += state.map.reserved(sequence.id, instance) - held;
  return slots;
}

int64_t all_slots(const SchedulerState& state, const ActiveSequence& sequence) {
  int64_t slots = 0;
  for (const int32_t instance : sequence.instances)
    slots += state.map.reserved(sequence.id, instance);
  return slots;
}

/// The sequence has other slots than its instances were told.
void note_moved(SchedulerState& state, ActiveSequence& sequence) {
  sequence.instances = state.instances_of(sequence.id);
  sequence.changed = true;
}

/// Moves the movable slots to a further instance.
void grow_on(SchedulerState& state, ActiveSequence& sequence, int32_t instance) {
  state.map.set_reserved(sequence.id, instance, movable_slots(state, sequence));
  for (const int32_t old : sequence.instances)
    if (const int64_t held = state.map.held(sequence.id, old); held > 0)
      state.map.set_reserved(sequence.id, old, held);
  note_moved(state, sequence);
}

/// Whether the team that reads the sequence's prompt answers sooner together than `holders` of it
/// do, and nothing else is there that its instances could do.
bool answers_together(const SchedulerState& state, const ActiveSequence& sequence,
                      const parallel::Team& team, int holders, std::vector<Decision>& decisions) {
  if (!state.times.teams || state.limits.waits_least() || !state.waiting.empty() ||
      sequence.origin->is_fork() || !sequence.samples || team.workers() <= holders)
    return false;
  AnswersAhead answers{.context = state.map.length(sequence.id) + sequence.unread()};
  for (const ActiveSequence& other : state.active) {
    if (&other == &sequence) continue;
    const auto in_team = std::ranges::count_if(
        other.instances, [&](int32_t instance) { return team.index_of(instance).has_value(); });
    if (in_team == std::ssize(other.instances)) {
      ++answers.others;
      answers.other_context += state.map.length(other.id);
    } else if (in_team > 0 || !other.begun || other.feeding()) {
      return false;
    }
  }
  const ChosenDegree choice =
      answering_degree(*state.times.teams, holders, team.workers(), answers);
  decisions.push_back({"elastic_answer",
                       {{"sequence", static_cast<double>(sequence.id)},
                        {"holders", holders},
                        {"readers", team.workers()},
                        {"seconds", choice.seconds},
                        {"holders_s", choice.holders_s}},
                       choice.degree > holders ? "together" : "holders"});
  return choice.degree > holders;
}

}  // namespace

bool grow(SchedulerState& state, const Selection& ready, const PassDrafts& drafts,
          std::set<int32_t>& team, std::vector<Decision>& decisions) {
  if (!state.times.teams || !state.forks.empty()) return false;
  const Room used = state.room();
  std::vector<int32_t> idle;
  for (int32_t instance = 0; instance < state.limits.ring_size; ++instance)
    if (used[instance].idle && used[instance].sequences == 0 &&
        state.limits.same_part(instance, *team.begin()) &&
        std::ssize(team) + std::ssize(idle) < state.limits.max_instances)
      idle.push_back(instance);
  const auto [rows, pairs] = rows_with(state, drafts, ready);
  const auto degree = static_cast<int>(team.size());
  const GrownTeam grown =
      grown_team(*state.times.teams, degree, degree + static_cast<int>(idle.size()), rows, pairs,
                 std::ssize(ready));
  if (grown.degree == degree) return false;
  decisions.push_back({"elastic_growth",
                       {{"instances", degree},
                        {"candidates", degree + static_cast<double>(idle.size())},
                        {"grown", grown.degree},
                        {"seconds", grown.seconds},
                        {"before_s", grown.before_s}},
                       "grown"});
  idle.resize(grown.degree - degree);

  // Each new instance gets the share of a master, of the sequences with most left to answer.
  const auto unused = [&](const ActiveSequence* sequence) {
    return movable_slots(state, *sequence);
  };
  Selection movable;
  for (ActiveSequence* sequence : ready)
    if (!sequence->origin->is_fork() && unused(sequence) > 0) movable.push_back(sequence);
  std::ranges::stable_sort(movable, std::ranges::greater(), unused);
  const size_t share = (ready.size() + grown.masters - 1) / grown.masters;
  auto next = movable.begin();
  for (const int32_t instance : idle) {
    int64_t free = used[instance].free_slots;
    for (size_t moved = 0; moved < share && next != movable.end(); ++next) {
      if (unused(*next) > free) continue;
      free -= unused(*next);
      grow_on(state, **next, instance);
      team.insert(instance);
      ++moved;
    }
  }
  return std::ssize(team) > degree;
}

bool spread(SchedulerState& state, ActiveSequence& sequence, const parallel::Team& team,
            const Slots& free, std::vector<Decision>& decisions) {
  const auto holders = static_cast<int>(sequence.instances.size());
  if (!answers_together(state, sequence, team, holders, decisions)) return false;
  parallel::KvMap& map = state.map;
  const int64_t share = (all_slots(state, sequence) + team.workers() - 1) / team.workers();
  for (const int32_t helper : team.instances) {
    if (std::ranges::count(sequence.instances, helper) > 0) continue;
    int64_t wanted = std::min(share, free[helper]), moved = 0;
    for (const int32_t holder : sequence.instances) {
      const int64_t kept = std::max(share, map.held(sequence.id, holder));
      const int64_t spare =
          std::clamp<int64_t>(map.reserved(sequence.id, holder) - kept, 0, wanted - moved);
      map.set_reserved(sequence.id, holder, map.reserved(sequence.id, holder) - spare);
      moved += spare;
    }
    if (moved > 0) map.set_reserved(sequence.id, helper, moved);
  }
  note_moved(state, sequence);
  return true;
}

void gather(SchedulerState& state, ActiveSequence& sequence, PlanItem& chunk,
            const parallel::Team& team, const Slots& free, std::vector<Decision>& decisions) {
  if (sequence.instances.size() == 1 || sequence.origin->is_fork() ||
      state.limits.answering_instances().least > 1 ||
      answers_together(state, sequence, team, 1, decisions))
    return;
  parallel::KvMap& map = state.map;
  const int64_t slots = all_slots(state, sequence);
  std::optional<int32_t> keeper;
  for (const int32_t instance : sequence.instances)
    if (free[instance] + map.reserved(sequence.id, instance) >= slots &&
        (!keeper || map.held(sequence.id, instance) > map.held(sequence.id, *keeper)))
      keeper = instance;
  if (!keeper) return;
  map.set_reserved(sequence.id, *keeper, slots);
  sequence.changed = true;
  chunk.kept = {
      {*keeper, map.length(sequence.id) - map.held(sequence.id, *keeper) + chunk.rows.count}};
  chunk.gathers = 1;
}

void keep_by_room(const SchedulerState& state, PlanItem& chunk, const parallel::Team& team) {
  if (team.size() == 1) return;
  Slots room;
  for (const int32_t instance : team.instances)
    room.push_back(state.map.reserved(chunk.rows.sequence, instance) -
                   state.map.held(chunk.rows.sequence, instance));
  const Slots shares = shares_by_free_slots(chunk.rows.count, room);
  for (size_t i = 0; i < shares.size(); ++i)
    if (shares[i] > 0) chunk.kept.push_back({team.instances[i], shares[i]});
}

}  // namespace pecia::schedule
