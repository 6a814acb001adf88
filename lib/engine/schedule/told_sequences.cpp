// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/told_sequences.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

namespace pecia::schedule {

void ToldSequences::introduce(const SchedulerState& state, ActiveSequence& sequence, Plan& plan) {
  const std::vector<int32_t>& team = plan.teams.front().instances;
  const RequestState& origin = *sequence.origin;
  for (const int64_t id : state.map.lineage(sequence.id)) {
    const bool itself = id == sequence.id;
    Told& told = told_[id];
    told.ever.resize(unheard_.size()), told.now.resize(unheard_.size());
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
    if (!known && itself && sequence.samples)
      plan.turns.push_back(
          {id, turn.params, turn.random_key, sequence.answer_begin, turn.shape, turn.bias});
  }
}

void ToldSequences::introduce_copy(const SchedulerState& state, int64_t copy,
                                   const std::vector<int32_t>& places, Receiving& receiving) {
  Told& told = told_[copy];
  told.ever.resize(unheard_.size()), told.now.resize(unheard_.size());
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
    if (told->second.ever[instance]) unheard_[instance].push_back(sequence);
  told_.erase(told);
}

std::vector<int64_t> ToldSequences::take_ended(const std::vector<int32_t>& instances) {
  std::set<int64_t, std::greater<>> ended;  // a child comes after its prefix
  for (const int32_t instance : instances)
    for (const int64_t sequence : std::exchange(unheard_[instance], {})) ended.insert(sequence);
  return {ended.begin(), ended.end()};
}

}  // namespace pecia::schedule
