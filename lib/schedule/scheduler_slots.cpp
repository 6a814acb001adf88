// SPDX-License-Identifier: Apache-2.0
/// How many KV slots a request needs on each rank.

#include <algorithm>
#include <span>

#include "lib/parallel/ring.hpp"
#include "lib/parallel/virtual_ranks.hpp"
#include "lib/schedule/scheduler_parts.hpp"

namespace pecia::schedule {

/// What passes are cut for: the team's instances where teams change.
int32_t Scheduler::virtual_ranks_of_rows() const {
  if (state_.limits.elastic) return 0;
  return state_.limits.layout_invariant ? parallel::layout_ranks : state_.limits.ring_size;
}

Scheduler::Room Scheduler::room() const {
  Room room(state_.limits.ring_size);
  const Slots free = state_.free_slots();
  for (int instance = 0; instance < state_.limits.ring_size; ++instance) {
    room[instance].idle = state_.doing[instance] == Doing::nothing;
    room[instance].free_slots = free[instance];
  }
  for (const ActiveSequence& running : state_.active) {
    const int64_t left = running.begun ? std::ssize(running.feed) - running.fed
                                       : first_tokens(running.origin->request);
    for (const int32_t instance : running.instances) {
      ++room[instance].sequences;
      if (left > 0) room[instance].unread.push_back({running.origin->due_s(), left});
    }
  }
  return room;
}

/// Where a waiting request takes its slots if it begins now, which are no longer free in `room`
/// then; absent: it waits.
std::optional<Slots> Scheduler::begin_in(Room& room, const RequestState& family) const {
  return begin_in(room, state_.needs.of_request(family.request), first_tokens(family.request),
                  family.due_s());
}

/// Where teams change, a request that fits into one instance waits for one that can read it.
std::optional<Slots> Scheduler::begin_in(Room& room, int64_t slots, int64_t tokens,
                                         double due_s) const {
  std::optional<Slots> taken;
  if (state_.limits.elastic && state_.limits.min_instances == 1 &&
      slots <= state_.limits.kv_tokens) {
    const int64_t sequences =
        (state_.limits.max_sequences + state_.limits.ring_size - 1) / state_.limits.ring_size;
    const auto place = place_of(room, slots, due_s, {sequences, state_.limits.max_batch_tokens});
    if (!place) return {};
    taken.emplace(state_.limits.ring_size)[*place] = slots;
  } else {
    taken = places_for(slots, free_of(room));
    if (!taken) return {};
  }
  for (int instance = 0; instance < state_.limits.ring_size; ++instance) {
    if (taken->at(instance) == 0) continue;
    room[instance].free_slots -= taken->at(instance);
    room[instance].unread.push_back({due_s, tokens});
    ++room[instance].sequences;
  }
  return taken;
}

/// Where a request that needs `slots` slots takes them; absent: they are not free. Without changing
/// teams they are on each instance.
std::optional<Slots> Scheduler::places_for(int64_t slots, const Slots& free) const {
  if (state_.limits.elastic)
    return slots_on_fewest(slots, free, state_.limits.min_instances, state_.limits.max_instances);
  if (slots > *std::min_element(free.begin(), free.end())) return {};
  return Slots(state_.limits.ring_size, slots);
}

/// The first `slots` of these slots; without changing teams, these are on each instance.
Slots Scheduler::first_of(int64_t slots, const Slots& from) const {
  if (!state_.limits.elastic) return Slots(state_.limits.ring_size, slots);
  Slots first(from.size());
  for (size_t instance = 0; instance < from.size(); ++instance) {
    first[instance] = std::min(slots, from[instance]);
    slots -= first[instance];
  }
  PECIA_CHECK(slots == 0, "{} slots more than there are", slots);
  return first;
}

}  // namespace pecia::schedule
