// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/told_sequences.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {

void ToldSequences::introduce(const SchedulerState& state, ActiveSequence& sequence, Plan& plan) {
  const std::vector<int32_t>& team = plan.teams.front().instances;
  const RequestState& origin = *sequence.origin;
  for (const int64_t id : state.map.lineage(sequence.id)) {
    const bool itself = id == sequence.id;
    Told& told = told_of(id);
    bring_back(state, id, plan);
    for (const int32_t instance : team) tell_length(state, id, instance, plan);
    if (itself && std::exchange(sequence.changed, false)) told.now.assign(unheard_.size(), false);
    const bool known =
        std::ranges::all_of(team, [&](int32_t instance) { return told.now[instance]; });
    const bool twice = std::ranges::count(plan.added, id, &NewSequence::sequence) > 0;
    if (!known && !twice) {
      NewSequence added{id, state.map.state(id), keeps_tokens(origin.request)};
      if (added.keeps_tokens != 0) {
        added.tokens = origin.cached;
        if (sequence.is_branch() && itself)
          added.tokens.insert(added.tokens.end(), sequence.own_cached.begin(),
                              sequence.own_cached.end());
      }
      plan.added.push_back(std::move(added));
    }
    // A prefix does not change any more, and the sequence does so in this pass.
    if (itself) told.now.assign(unheard_.size(), false);
    for (const int32_t instance : team) told.ever[instance] = told.now[instance] = true;
    const batch::Turn& turn = sequence.current();
    if (!known && itself && sequence.begun && sequence.samples)
      plan.turns.push_back(
          {id, turn.params, turn.random_key, sequence.answer_begin, turn.shape, turn.bias});
  }
}

void ToldSequences::introduce_copy(const SchedulerState& state, int64_t copy,
                                   const std::vector<int32_t>& places, Receiving& receiving) {
  Told& told = told_of(copy);
  const bool known =
      std::ranges::all_of(places, [&](int32_t instance) { return told.now[instance]; });
  if (!known) receiving.added.push_back({copy, state.map.state(copy), 0});
  for (const int32_t instance : places) {
    told.ever[instance] = told.now[instance] = true;
    if (!receiving.has(instance)) receiving.instances.push_back(instance);
  }
}

void ToldSequences::forget(int64_t sequence) {
  const auto told = told_.find(sequence);
  if (told == told_.end()) return;
  for (size_t instance = 0; instance < unheard_.size(); ++instance)
    if (told->second.ever[instance]) unheard_[instance][sequence] = Leaves::forgotten;
  told_.erase(told);
}

void ToldSequences::park(const SchedulerState& state, int64_t sequence) {
  const auto found = told_.find(sequence);
  if (found == told_.end()) return;
  Told& told = found->second;
  told.now.assign(unheard_.size(), false);
  const Slots held = state.held(sequence);
  for (size_t instance = 0; instance < unheard_.size(); ++instance) {
    if (!told.ever[instance] || told.parked[instance]) continue;
    const bool parks = held[instance] > 0 || state.map.has_children(sequence);
    unheard_[instance][sequence] = parks ? Leaves::parked : Leaves::forgotten;
    told.ever[instance] = parks;
  }
}

void ToldSequences::shorten(int64_t sequence) {
  const auto found = told_.find(sequence);
  if (found == told_.end()) return;
  Told& told = found->second;
  for (size_t instance = 0; instance < unheard_.size(); ++instance)
    told.longer[instance] = told.longer[instance] || told.now[instance];
}

void ToldSequences::leave(const ActiveSequence& sequence) {
  const auto found = told_.find(sequence.id);
  if (found == told_.end()) return;
  Told& told = found->second;
  for (size_t instance = 0; instance < unheard_.size(); ++instance) {
    if (!told.ever[instance] ||
        std::ranges::count(sequence.instances, static_cast<int32_t>(instance)) > 0)
      continue;
    unheard_[instance][sequence.id] = Leaves::forgotten;
    told.ever[instance] = told.now[instance] = told.parked[instance] = false;
    told.longer[instance] = false;
  }
}

ToldSequences::Told& ToldSequences::told_of(int64_t sequence) {
  Told& told = told_[sequence];
  told.ever.resize(unheard_.size()), told.now.resize(unheard_.size());
  told.parked.resize(unheard_.size()), told.longer.resize(unheard_.size());
  return told;
}

/// A sequence that is not parked any more: the team's instances take its keys back, also those that
/// hear only now that it was.
void ToldSequences::bring_back(const SchedulerState& state, int64_t sequence, Plan& plan) {
  Told& told = told_of(sequence);
  bool returns = false;
  for (const int32_t instance : plan.teams.front().instances) {
    const auto unheard = unheard_[instance].find(sequence);
    if (unheard != unheard_[instance].end() && unheard->second == Leaves::parked) {
      tell_that_it_parks(state, sequence, instance, plan, plan.left);
      unheard_[instance].erase(unheard);
    }
    if (!told.parked[instance]) continue;
    const int64_t tokens = state.map.held_by(sequence, instance);
    returned_ += tokens, moved_by_[instance] += tokens;
    told.parked[instance] = false;
    returns = true;
  }
  if (returns) plan.returned.push_back({sequence, state.reserved(sequence)});
}

/// Tells the instance where the sequence ends, if it has tokens after that.
void ToldSequences::tell_length(const SchedulerState& state, int64_t sequence, int32_t instance,
                                Plan& plan) {
  Told& told = told_of(sequence);
  if (!told.longer[instance]) return;
  told.longer[instance] = false;
  if (std::ranges::count(plan.shortened, sequence, &ShortenedSequence::sequence) == 0)
    plan.shortened.push_back({sequence, state.map.length(sequence)});
}

void ToldSequences::tell_that_it_parks(const SchedulerState& state, int64_t sequence,
                                       int32_t instance, Plan& plan,
                                       std::vector<LeftInstance>& left) {
  tell_length(state, sequence, instance, plan);
  left.push_back({sequence, instance, 1});
  told_of(sequence).parked[instance] = true;
  const int64_t tokens = state.map.held_by(sequence, instance);
  parked_ += tokens, moved_by_[instance] += tokens;
}

void ToldSequences::tell_what_left(const SchedulerState& state, Plan& plan) {
  std::set<int64_t, std::greater<>> ended;  // a child comes after its prefix
  for (const int32_t instance : plan.teams.front().instances)
    for (const auto& [sequence, leaves] : std::exchange(unheard_[instance], {}))
      if (leaves == Leaves::parked)
        tell_that_it_parks(state, sequence, instance, plan, plan.left);
      else if (told_.contains(sequence))  // it has begun again
        plan.left.push_back({sequence, instance, 0});
      else
        ended.insert(sequence);
  plan.removed = {ended.begin(), ended.end()};
  Receiving& receiving = plan.receiving;
  for (const int32_t instance : receiving.instances)
    for (const auto& [sequence, leaves] : std::exchange(unheard_[instance], {}))
      if (leaves == Leaves::parked)
        tell_that_it_parks(state, sequence, instance, plan, receiving.left);
      else
        receiving.left.push_back({sequence, instance, 0});
}

ToldSequences::Moved ToldSequences::take_moved(const parallel::Team& team) {
  Moved moved{std::exchange(parked_, 0), std::exchange(returned_, 0)};
  for (const int32_t instance : team.instances)
    moved.on_busiest = std::max(moved.on_busiest, std::exchange(moved_by_[instance], 0));
  return moved;
}

}  // namespace pecia::schedule
