// SPDX-License-Identifier: Apache-2.0
/// Which requests and branches begin, and how a turn begins.

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/schedule/scheduler_parts.hpp"

namespace pecia::schedule {
/// Begins branches, then requests. A fork without a running branch comes first: its next branch
/// takes the place that the stem or the branch before has left, on the fork's credit. So a stem
/// never holds its keys while it waits.
void Scheduler::admit(double now) {
  const auto room = [&] { return running() < state_.limits.max_sequences; };
  for (const auto& fork : state_.forks)
    if (fork->active_branches == 0 && time_.branch_in_time(state_, *fork, now)) {
      PECIA_CHECK(room(), "no place for the branch of a stem that ended");
      admit_branch(fork);
    }
  for (auto fork = state_.forks.begin(); fork != state_.forks.end();) {
    while (room() && (*fork)->branches_left() && time_.branch_in_time(state_, **fork, now) &&
           admit_branch(*fork)) {
    }
    fork = (*fork)->branches_left() ? std::next(fork) : state_.forks.erase(fork);
  }
  Room left = state_.waiting.empty() ? Room{} : this->room();
  for (auto next = state_.waiting.begin(); room() && next != state_.waiting.end();) {
    const auto family = *next;
    if (!time_.in_time_alone(state_, family->request, now)) {
      state_.late.push_back(family);
    } else if (!time_.in_time(state_, family->request, now) || !admit_request(family, left)) {
      if (!may_be_overtaken(*family, left)) break;
      ++next;
      continue;
    }
    next = state_.waiting.erase(next);
  }
  if (!state_.late.empty() && room()) begin_late(now);
}

/// Begins a request that will not be answered in time, where begins_anyway holds.
bool Scheduler::begin_late(double now) {
  if (!begins_anyway(now)) return false;
  const auto chosen = state_.late.begin() + static_cast<int64_t>(time_.late_to_begin(state_));
  const std::shared_ptr<RequestState> family = *chosen;
  Room left = room();
  if (!admit_request(family, left)) return false;
  family->anyway = true;
  state_.late.erase(chosen);
  return true;
}

/// Whether others may begin before a request that cannot begin now. They may if it only waits for an
/// instance, but they do not take slots that it waits for.
bool Scheduler::may_be_overtaken(const RequestState& family, const Room& left) const {
  return waits_least() && state_.needs.of_request(family.request) <= sum_of(free_of(left));
}

/// Begins the request if it can; what it takes is then no longer in `left`.
bool Scheduler::admit_request(const std::shared_ptr<RequestState>& family, Room& left) {
  const std::optional<Slots> slots = begin_in(left, *family);
  if (!slots) return false;
  Slots reserved = *slots;
  if (family->is_fork()) reserved = first_of(state_.needs.of_prefix(family->request), *slots);
  state_.begin(family, reserved, without(*slots, reserved));
  return true;
}

/// Starts the family's next branch, on its credit or on free memory.
bool Scheduler::admit_branch(const std::shared_ptr<RequestState>& family) {
  const int64_t needed = state_.needs.of_branch(family->request, family->next_branch);
  if (!family->credit_used) {
    state_.begin_branch(family, first_of(needed, family->kept_back), true);
    return true;
  }
  const auto slots = places_beside(*family, needed);
  if (slots) state_.begin_branch(family, *slots, false);
  return slots.has_value();
}

/// Free slots for another branch of a fork. Where teams change, they are on the instances that the
/// fork has already: its branches meet there in any case.
std::optional<Slots> Scheduler::places_beside(const RequestState& family, int64_t needed) const {
  Slots free = state_.free_slots();
  for (int instance = 0; state_.limits.elastic && instance < state_.limits.ring_size; ++instance)
    if (state_.map.reserved(family.prefix, instance) + family.credit[instance] == 0)
      free[instance] = 0;
  return places_for(needed, free);
}

}  // namespace pecia::schedule
