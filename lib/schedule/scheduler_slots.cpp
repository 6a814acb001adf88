// SPDX-License-Identifier: Apache-2.0
/// How many KV slots a request needs on each rank.

#include <algorithm>
#include <span>

#include "lib/parallel/ring.hpp"
#include "lib/parallel/virtual_ranks.hpp"
#include "lib/schedule/scheduler_state.hpp"

namespace pecia::schedule {

/// The instances that a sequence's slots are shared out to in equal parts. Where teams change, each
/// sequence has slots on some instances only, and they are counted in all.
int Scheduler::shares() const {
  return limits_.elastic ? 1 : limits_.ring_size;
}

/// The ranks that slots are shared out to: the ring's, or the virtual ranks, of which each rank of
/// the ring plays an equal number.
int Scheduler::virtual_ranks() const {
  return limits_.layout_invariant ? parallel::layout_ranks : shares();
}

/// What passes are cut for: the team's instances where teams change.
int32_t Scheduler::virtual_ranks_of_rows() const {
  return limits_.elastic ? 0 : virtual_ranks();
}

/// Slots for tokens that are prefilled in chunks. Under prefill_first each chunk has
/// max_batch_tokens, and the last one is shorter.
///
/// Under chunked the lengths of the chunks are not known yet. Let U = 2N be their unit, tokens =
/// a·U + r with 0 ≤ r < U, and let the last chunk have b·U + r of them (b ≤ a). The chunks before
/// it are multiples of U, of which every rank owns two tokens in U: 2·(a − b). The last chunk is
/// cut into U pieces of b tokens (r = 0) or of at most b + 1. A rank owns two pieces: at most 2·b,
/// or 2·(b + 1). The sum is 2·a (r = 0) or 2·(a + 1) whatever b and the chunks are: 2·⌈tokens / U⌉.
/// It is also never more than all tokens.
int64_t Scheduler::feed_slots(int64_t tokens) const {
  if (limits_.elastic) return tokens;
  if (limits_.policy == job::Policy::chunked)
    return std::min(tokens, 2 * ((tokens + limits_.chunk_unit() - 1) / limits_.chunk_unit()));
  const int64_t chunk = limits_.max_batch_tokens;
  return virtual_ranks() / shares() *
         (tokens / chunk * parallel::max_owned_tokens(chunk, virtual_ranks()) +
          parallel::max_owned_tokens(tokens % chunk, virtual_ranks()));
}

/// Slots for the tokens that are still to be generated, if no rank gets more than its share.
int64_t Scheduler::answer_slots(const Turn& turn) const {
  const int64_t tokens =
      std::max<int64_t>(0, turn.max_new_tokens - static_cast<int64_t>(turn.answer.tokens.size()));
  const int dealt_to = virtual_ranks();
  return dealt_to / shares() * ((tokens + dealt_to - 1) / dealt_to);
}

/// Slots for turns that follow each other.
int64_t Scheduler::slots_of(std::span<const Turn> turns) const {
  int64_t slots = 0, unfed = 0;
  for (const Turn& turn : turns) {
    if (!turn.refused.empty()) break;
    unfed += static_cast<int64_t>(turn.tokens.size() + turn.answer.tokens.size());
    if (turn.finished) continue;
    const int64_t stem_end = limits_.layout_invariant ? turn.stem_end_tokens : 0;
    slots += feed_slots(stem_end) + feed_slots(unfed - stem_end) + answer_slots(turn);
    unfed = 1;  // the last token of an answer is cached with the next turn
  }
  return slots;
}

int64_t Scheduler::stem_slots(const Request& request) const {
  return feed_slots(static_cast<int64_t>(request.turns.front().tokens.size()));
}

int64_t Scheduler::branch_slots(const Request& request, size_t turn) const {
  if (turn > 0)
    return slots_of(std::span(request.turns).subspan(turn, end_of_branch(request, turn) - turn));
  const Turn& branch = request.turns[turn];
  const auto answered = static_cast<int64_t>(branch.answer.tokens.size());
  // The first token of the first turn's answer comes from the stem, or from an earlier run.
  if (branch.max_new_tokens <= 1) return 0;
  return feed_slots(std::max<int64_t>(1, answered)) + answer_slots(branch);
}

/// Slots of a turn with what comes before it, if nothing else runs.
int64_t Scheduler::slots_alone(const Request& request, size_t turn) const {
  if (request.followup == io::Followup::chain) return slots_of(request.turns);
  return stem_slots(request) + (branch_settled(request, turn) ? 0 : branch_slots(request, turn));
}

int64_t Scheduler::tokens_needed(const Request& request) const {
  if (request.followup == io::Followup::chain) return slots_of(request.turns);
  int64_t most = 0;
  for (size_t turn = 0; turn < request.turns.size(); turn = end_of_branch(request, turn))
    if (!branch_settled(request, turn)) most = std::max(most, branch_slots(request, turn));
  return stem_slots(request) + most;
}

Scheduler::Slots Scheduler::free_slots() const {
  Slots free(limits_.ring_size);
  for (int instance = 0; instance < limits_.ring_size; ++instance)
    free[instance] = limits_.kv_tokens - map_.total_reserved(instance) - credits_[instance];
  return free;
}

Scheduler::Room Scheduler::room() const {
  Room room(limits_.ring_size);
  const Slots free = free_slots();
  for (int instance = 0; instance < limits_.ring_size; ++instance) {
    room[instance].idle = doing_[instance] == Doing::nothing;
    room[instance].free_slots = free[instance];
  }
  for (const Running& running : running_) {
    const int64_t left = running.begun ? std::ssize(running.feed) - running.fed
                                       : first_tokens(running.family->request);
    for (const int32_t instance : running.instances) {
      ++room[instance].sequences;
      if (left > 0) room[instance].unread.push_back({due(*running.family), left});
    }
  }
  return room;
}

/// Where a waiting request takes its slots if it begins now, which are no longer free in `room`
/// then; absent: it waits.
std::optional<Scheduler::Slots> Scheduler::begin_in(Room& room, const Family& family) const {
  return begin_in(room, tokens_needed(family.request), first_tokens(family.request), due(family));
}

/// Where teams change, a request that fits into one instance waits for one that can read it.
std::optional<Scheduler::Slots> Scheduler::begin_in(Room& room, int64_t slots, int64_t tokens,
                                                    double due_s) const {
  std::optional<Slots> taken;
  if (limits_.elastic && limits_.min_instances == 1 && slots <= limits_.kv_tokens) {
    const int64_t sequences = (limits_.max_sequences + limits_.ring_size - 1) / limits_.ring_size;
    const auto place = place_of(room, slots, due_s, {sequences, limits_.max_batch_tokens});
    if (!place) return {};
    taken.emplace(limits_.ring_size)[*place] = slots;
  } else {
    taken = places_for(slots, free_of(room));
    if (!taken) return {};
  }
  for (int instance = 0; instance < limits_.ring_size; ++instance) {
    if (taken->at(instance) == 0) continue;
    room[instance].free_slots -= taken->at(instance);
    room[instance].unread.push_back({due_s, tokens});
    ++room[instance].sequences;
  }
  return taken;
}

/// Where a request that needs `slots` slots takes them; absent: they are not free. Without changing
/// teams they are on each instance.
std::optional<Scheduler::Slots> Scheduler::places_for(int64_t slots, const Slots& free) const {
  if (limits_.elastic)
    return slots_on_fewest(slots, free, limits_.min_instances, limits_.max_instances);
  if (slots > *std::min_element(free.begin(), free.end())) return {};
  return Slots(limits_.ring_size, slots);
}

/// The first `slots` of these slots; without changing teams, these are on each instance.
Scheduler::Slots Scheduler::first_of(int64_t slots, const Slots& from) const {
  if (!limits_.elastic) return Slots(limits_.ring_size, slots);
  Slots first(from.size());
  for (size_t instance = 0; instance < from.size(); ++instance) {
    first[instance] = std::min(slots, from[instance]);
    slots -= first[instance];
  }
  PECIA_CHECK(slots == 0, "{} slots more than there are", slots);
  return first;
}

}  // namespace pecia::schedule
