// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/demand.hpp"

#include <algorithm>
#include <tuple>

#include "lib/base/core/error.hpp"
#include "lib/base/core/random.hpp"

namespace pecia::schedule {
namespace {

using Position = std::list<ActiveSequence>::iterator;

/// Free on every rank.
int64_t least_free(const SchedulerState& state) {
  return std::ranges::min(state.free_slots());
}

/// Whether ranks hear of the sequence with the next plan.
bool is_new(const SchedulerState& state, int64_t sequence) {
  return std::ranges::any_of(state.news.added,
                             [&](const auto& told) { return told.sequence == sequence; });
}

bool is_complete(const ActiveSequence& sequence) {
  return sequence.decoded == sequence.room && sequence.can_decode();
}

/// Whether no sequence of the fork is in the cache but its prefix, which has been read.
bool is_idle(const SchedulerState& state, const RequestState& fork) {
  return state.map.contains(fork.prefix) && !state.map.is_parked(fork.prefix) &&
         std::ranges::none_of(
             state.active,
             [&](const ActiveSequence& sequence) { return sequence.origin.get() == &fork; }) &&
         std::ranges::none_of(state.parked, [&](const ActiveSequence& sequence) {
           return sequence.id == fork.prefix;
         });
}

}  // namespace

int64_t Demand::first_room(const SchedulerState& state, const batch::Request& request,
                           const batch::Turn& turn) const {
  const int64_t given = std::ssize(turn.answer.tokens), most = turn.max_new_tokens - given;
  if (most <= 0) return 0;
  if (state.needs.of_request(request) <= state.limits.kv_tokens / state.limits.max_sequences)
    return most;
  const int64_t likely = state.lengths.likely(turn, given) - given;
  return std::min(most, (likely + block_ - 1) / block_ * block_);
}

/// The sequence that yields next, if one may.
std::optional<Position> Demand::victim(SchedulerState& state) const {
  std::optional<Position> chosen;
  const auto cost = [&](const ActiveSequence& sequence) {
    return std::tuple(sequence.came_back, state.own_tokens(sequence.id), -sequence.id);
  };
  for (auto at = state.active.begin(); at != state.active.end(); ++at) {
    if (at == state.active.begin() || at->in_pass > 0 || is_new(state, at->id)) continue;
    if (!chosen || cost(*at) < cost(**chosen)) chosen = at;
  }
  return chosen;
}

/// Makes sure that the sequence has this number of slots. False: it waits, or has yielded itself.
bool Demand::extend(SchedulerState& state, ActiveSequence& sequence, int64_t slots) const {
  const int64_t more = slots - state.map.reserved(sequence.id, 0);
  if (more <= 0) return true;
  while (least_free(state) < more) {
    if (const auto yields = victim(state)) {
      const bool itself = &**yields == &sequence;
      state.park(*yields);
      if (itself) return false;
      continue;
    }
    // Ranks have to hear of the others first, which have something to read.
    if (state.active.size() > 1 || !park_a_prefix(state)) return false;
  }
  state.grow(sequence, Slots(state.limits.ring_size, slots));
  return true;
}

void Demand::grow(SchedulerState& state) const {
  if (!on_) return;
  force_yield(state);
  // A sequence that yields leaves the list, so each is looked for after the one before.
  for (int64_t last = -1;;) {
    const auto next = std::ranges::find_if(state.active, [&](const ActiveSequence& sequence) {
      return sequence.id > last && is_complete(sequence);
    });
    if (next == state.active.end()) return;
    last = next->id;
    const int64_t room = std::min(next->room + block_, next->longest_room());
    if (!extend(state, *next, next->base + state.needs.of_generated(room))) continue;
    ++state.demand.blocks;
    next->room = room;
    next->deal_limit = state.needs.of_generated(room);
  }
}

/// Parks a sequence that could be, in every other pass.
void Demand::force_yield(SchedulerState& state) const {
  if (!forced_yields_ || state.active.size() < 2) return;
  const uint64_t drawn = mix(*forced_yields_, static_cast<uint64_t>(state.next_pass));
  if (drawn % 2 == 0) return;
  const auto chosen = std::next(
      state.active.begin(), 1 + static_cast<ptrdiff_t>((drawn >> 8) % (state.active.size() - 1)));
  if (chosen->in_pass == 0 && !is_new(state, chosen->id)) state.park(chosen);
}

/// Room that a parked sequence comes back with: for a likely answer.
int64_t Demand::room_to_return(const SchedulerState& state, const ActiveSequence& sequence) const {
  if (!sequence.begun) return sequence.room;
  const int64_t given = std::ssize(sequence.result.tokens);
  const int64_t likely = state.lengths.likely(sequence.current(), given) - given;
  const int64_t blocks = std::max<int64_t>(1, (likely + block_ - 1) / block_);
  return std::min(sequence.decoded + blocks * block_, sequence.longest_room());
}

void Demand::bring_back(SchedulerState& state) const {
  while (!state.parked.empty() && std::ssize(state.active) < state.limits.max_sequences) {
    const auto first = state.parked.begin();
    const bool yields_now = std::ranges::count(state.news.parked, first->id) > 0;
    if (yields_now && !state.active.empty()) return;
    RequestState& origin = *first->origin;
    const bool with_prefix = first->is_branch() && state.map.is_parked(origin.prefix);
    const int64_t room = room_to_return(state, *first);
    const int64_t slots = first->base + state.needs.of_generated(room);
    const int64_t prefix = with_prefix ? state.needs.of_prefix(origin.request) : 0;
    if (least_free(state) < slots + prefix) return;
    if (with_prefix) state.bring_prefix_back(origin);
    ActiveSequence& back = *first;
    state.bring_back(first, Slots(state.limits.ring_size, slots));
    back.room = room;
    back.deal_limit = state.needs.of_generated(room);
  }
}

bool Demand::park_a_prefix(SchedulerState& state) const {
  const RequestState* first = nullptr;  // that goes on first
  if (!state.active.empty())
    first = state.active.front().origin.get();
  else if (!state.parked.empty())
    first = state.parked.front().origin.get();
  else if (!state.forks.empty())
    first = state.forks.front().get();
  const auto park = [&](RequestState& fork) {
    const bool parks = on_ && &fork != first && is_idle(state, fork);
    if (parks) state.park_keys(fork.prefix);
    return parks;
  };
  return std::ranges::any_of(state.forks, [&](const auto& fork) { return park(*fork); }) ||
         std::ranges::any_of(state.parked, [&](const ActiveSequence& parked) {
           return parked.is_branch() && park(*parked.origin);
         });
}

bool Demand::begin_turn(SchedulerState& state, ActiveSequence& sequence) const {
  if (!on_ || !sequence.is_between_turns) return true;
  const auto& turns = sequence.request().turns;
  int64_t unfed = std::ssize(sequence.unfed);
  size_t turn = sequence.turn;
  for (; turn < sequence.end && turns[turn].finished; ++turn)
    unfed += std::ssize(turns[turn].tokens) + std::ssize(turns[turn].answer.tokens);
  if (turn == sequence.end || !turns[turn].refused.empty()) return true;  // it will not begin
  const int64_t room = first_room(state, sequence.request(), turns[turn]);
  const int64_t base = sequence.base + state.needs.of_later_turn(turns[turn], unfed);
  if (!extend(state, sequence, base + state.needs.of_generated(room))) return false;
  sequence.base = base;
  sequence.room = room;
  sequence.is_between_turns = false;
  return true;
}

}  // namespace pecia::schedule
