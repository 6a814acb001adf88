// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/key_move.hpp"

#include <algorithm>
#include <set>

#include "lib/engine/schedule/elastic_degree.hpp"
#include "lib/engine/schedule/remaining_work.hpp"

namespace pecia::schedule {
namespace {

using Instances = std::set<int32_t>;

/// Seconds of a decode pass of these instances with all answers that are on some of them.
double step_s(const SchedulerState& state, const Instances& instances) {
  int64_t rows = 0, context = 0;
  for (const ActiveSequence& sequence : state.active) {
    const bool is_there = std::ranges::any_of(
        sequence.instances, [&](int32_t instance) { return instances.contains(instance); });
    if (!is_there || !sequence.begun || sequence.feeding()) continue;
    ++rows;
    context += state.map.length(sequence.id);
  }
  if (rows == 0) return 0;
  return masters(*state.times.teams, static_cast<int>(instances.size()), rows, context).seconds;
}

/// Seconds until an even share of all prompts is read that have not been. 0 where others read them.
double reading_s(const SchedulerState& state) {
  if (state.limits.apart()) return 0;
  RemainingWork work;
  for (const auto& waiting : state.waiting)
    work.prompts += remaining_of(state, waiting->request).prompts;
  for (const ActiveSequence& sequence : state.active)
    if (sequence.begun) work.prompts += remaining_of(state, sequence).prompts;
  return state.times.teams->alone().prefill.seconds(work.prompts) / state.limits.ring_size;
}

/// The move of the sequence from this instance, with `more` slots; absent: nothing has room.
std::optional<KeyMove> move_from(const SchedulerState& state, ActiveSequence& sequence,
                                 int32_t from, int64_t more) {
  const SchedulerLimits& limits = state.limits;
  const parallel::KvMap& map = state.map;
  const bool ready =
      sequence.begun && sequence.can_decode() && sequence.leaves < 0 && !sequence.origin->is_fork();
  const bool holds = map.held(sequence.id, from) > 0;
  const int64_t room = sequence.room - sequence.decoded - sequence.replays + more;
  if (!ready || !holds || room <= 0) return {};
  const Slots free = state.free_slots();
  const auto degree = std::ssize(sequence.instances);
  std::optional<int32_t> to;
  for (int32_t instance = 0; instance < limits.ring_size; ++instance) {
    const bool is_own = std::ranges::count(sequence.instances, instance) > 0;
    // While the keys move, the sequence has both instances.
    const bool fits = is_own ? degree > limits.min_instances : degree < limits.max_instances;
    if (instance == from || !fits || !limits.same_part(instance, from) ||
        free[instance] < map.reserved(sequence.id, from) + more)
      continue;
    if (!to || free[instance] > free[*to]) to = instance;
  }
  if (!to) return {};
  KeyMove move{&sequence, from, *to, more, 0};
  if (state.times.teams)
    move.seconds =
        state.times.teams->travel_s(
            2, static_cast<double>(map.length(sequence.id))) +  // all of its keys go round
        state.times.teams->state_s();
  return move;
}

/// The cheaper of both.
void take(std::optional<KeyMove>& least, const std::optional<KeyMove>& other) {
  if (other && (!least || other->seconds < least->seconds)) least = other;
}

}  // namespace

std::optional<KeyMove> cheapest_move(const SchedulerState& state, ActiveSequence& sequence) {
  std::optional<KeyMove> least;
  for (const int32_t from : sequence.instances) take(least, move_from(state, sequence, from, 0));
  return least;
}

double growth_s(const SchedulerState& state, const ActiveSequence& sequence, const Slots& grown) {
  if (!state.limits.elastic || !state.times.teams || !sequence.begun) return 0;
  const Instances before(sequence.instances.begin(), sequence.instances.end());
  Instances further;
  for (int32_t instance = 0; instance < state.limits.ring_size; ++instance)
    if (grown[instance] > 0 && !before.contains(instance)) further.insert(instance);
  if (further.empty()) return 0;
  Instances all = before;
  all.insert(further.begin(), further.end());
  const double apart = std::max(step_s(state, before), step_s(state, further));
  const double left =
      state.lengths.expected(sequence.current(), std::ssize(sequence.result.tokens));
  const double together = step_s(state, all);
  return left * std::max(0.0, together - apart) + std::min(left * together, reading_s(state));
}

std::optional<KeyMove> move_for(SchedulerState& state, ActiveSequence& sequence, int64_t more) {
  std::optional<KeyMove> least;
  for (const int32_t from : sequence.instances) {
    take(least, move_from(state, sequence, from, more));
    for (ActiveSequence& other : state.active)
      if (&other != &sequence && std::ranges::count(other.instances, from) > 0 &&
          state.map.reserved(other.id, from) >= more)
        take(least, move_from(state, other, from, 0));
  }
  return least;
}

}  // namespace pecia::schedule
