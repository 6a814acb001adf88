// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/demand.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/base/core/random.hpp"

namespace pecia::schedule {
namespace {

using Position = std::list<ActiveSequence>::iterator;

/// Whether there is room for the keys of the sequence where keys are parked.
bool can_be_parked(const SchedulerState& state, int64_t sequence) {
  if (state.limits.parking_tokens == 0) return false;  // also where there are no keys yet
  const parallel::KvMap& map = state.map;
  for (int instance = 0; instance < map.instances(); ++instance)
    if (map.held_by(sequence, instance) > state.limits.parking_tokens - map.total_parked(instance))
      return false;
  return true;
}

/// Expected seconds in which these tokens are computed again, after `first` others.
std::optional<double> seconds_to_read(const SchedulerState& state, int64_t first,
                                      const std::vector<TokenRun>& runs) {
  if (!state.times.passes) return {};
  PassWork prompts, answers;
  int64_t prompt = 0;  // tokens that are read together
  const auto read = [&] {
    if (prompt > 0)
      prompts += work_of(static_cast<double>(first), static_cast<double>(prompt),
                         static_cast<double>(state.limits.batch_tokens()));
    first += std::exchange(prompt, 0);
  };
  for (const TokenRun& run : runs) {
    const bool by_token = run.generated && state.limits.layout_invariant;
    if (!by_token) {
      prompt += run.tokens;
      continue;
    }
    read();
    answers += work_of(static_cast<double>(first), static_cast<double>(run.tokens), 1);
    first += run.tokens;
  }
  read();
  return state.times.passes->prefill.seconds(prompts) + state.times.passes->decode.seconds(answers);
}

/// The ways in which a sequence can yield, and which of them takes less time with its return.
struct Way {
  bool forgets = false;
  double seconds = 0;
};

Way way_of(const SchedulerState& state, int64_t sequence, const std::vector<TokenRun>& runs) {
  const int64_t own = state.own_tokens(sequence);
  const auto read_s = seconds_to_read(state, state.map.length(sequence) - own, runs);
  const double park_s = 2 * state.times.parking_s(own);
  const bool parks = !state.news.adds(sequence) && can_be_parked(state, sequence);
  if (parks && (!read_s || park_s <= *read_s)) return {false, park_s};
  return {true, read_s.value_or(0)};
}

/// Free on every rank.
int64_t least_free(const SchedulerState& state) {
  return std::ranges::min(state.free_slots());
}

/// Whether ranks hear of the sequence with the next plan for the first time.
bool is_new(const SchedulerState& state, const ActiveSequence& sequence) {
  return !sequence.came_back && state.news.adds(sequence.id);
}

/// Whether it leaves the cache with the next plan.
bool yields_now(const SchedulerState& state, int64_t sequence) {
  return std::ranges::count(state.news.parked, sequence) > 0 ||
         std::ranges::count(state.news.removed, sequence) > 0;
}

bool is_complete(const ActiveSequence& sequence) {
  return !sequence.again && sequence.decoded == sequence.room && sequence.can_decode();
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
    return std::tuple(sequence.came_back, way_of(state, sequence.id, sequence.runs).seconds,
                      state.own_tokens(sequence.id), -sequence.id);
  };
  for (auto at = state.active.begin(); at != state.active.end(); ++at) {
    if (at == state.active.begin() || at->in_pass > 0 || is_new(state, *at)) continue;
    if (!chosen || cost(*at) < cost(**chosen)) chosen = at;
  }
  return chosen;
}

void Demand::yield(SchedulerState& state, std::list<ActiveSequence>::iterator sequence) const {
  if (way_of(state, sequence->id, sequence->runs).forgets)
    state.forget(sequence);
  else
    state.park(sequence);
}

/// Makes sure that the sequence has this number of slots. False: it waits, or has yielded itself.
bool Demand::extend(SchedulerState& state, ActiveSequence& sequence, int64_t slots) const {
  const int64_t more = slots - state.map.reserved(sequence.id, 0);
  if (more <= 0) return true;
  while (least_free(state) < more) {
    if (const auto yields = victim(state)) {
      const bool itself = &**yields == &sequence;
      yield(state, *yields);
      if (itself) return false;
      continue;
    }
    // Ranks have to hear of the others first, which have something to read.
    if (state.active.size() > 1 || !yield_a_prefix(state)) return false;
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

/// Lets a sequence yield that could, in every other pass, unless one reads its tokens again: else
/// nothing but that might ever be done.
void Demand::force_yield(SchedulerState& state) const {
  if (!forced_yields_ || state.active.size() < 2) return;
  if (std::ranges::any_of(state.active, [](const auto& of) { return of.again.has_value(); }))
    return;
  const uint64_t drawn = mix(*forced_yields_, static_cast<uint64_t>(state.next_pass));
  if (drawn % 2 == 0) return;
  const auto chosen = std::next(
      state.active.begin(), 1 + static_cast<ptrdiff_t>((drawn >> 8) % (state.active.size() - 1)));
  if (chosen->in_pass == 0 && !is_new(state, *chosen)) yield(state, chosen);
}

/// Room that a sequence comes back with: for a likely answer.
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
    if (yields_now(state, first->id) && !state.active.empty()) return;
    const std::shared_ptr<RequestState> origin = first->origin;
    if (origin->prefix_again) return;  // it waits for its prefix
    const bool forgotten = first->is_branch() && !state.map.contains(origin->prefix);
    const bool parked = first->is_branch() && !forgotten && state.map.is_parked(origin->prefix);
    const int64_t room = room_to_return(state, *first);
    const int64_t slots = first->base + state.needs.of_generated(room);
    const int64_t prefix = forgotten || parked ? state.needs.of_prefix(origin->request) : 0;
    if (least_free(state) < slots + prefix) return;
    if (forgotten) return state.read_prefix_again(origin);
    if (parked) state.bring_prefix_back(*origin);
    ActiveSequence& back = *first;
    back.room = room;
    back.deal_limit = state.needs.of_generated(room);
    state.bring_back(first, Slots(state.limits.ring_size, slots));
  }
}

bool Demand::yield_a_prefix(SchedulerState& state) const {
  const RequestState* first = nullptr;  // that goes on first
  if (!state.active.empty())
    first = state.active.front().origin.get();
  else if (!state.parked.empty())
    first = state.parked.front().origin.get();
  else if (!state.forks.empty())
    first = state.forks.front().get();
  const auto yields = [&](RequestState& fork) {
    if (!on_ || &fork == first || !is_idle(state, fork)) return false;
    const int64_t tokens = first_tokens(fork.request);
    if (way_of(state, fork.prefix, {{tokens, false, tokens, 0, 0}}).forgets)
      state.forget_prefix(fork);
    else
      state.park_keys(fork.prefix);
    return true;
  };
  return std::ranges::any_of(state.forks, [&](const auto& fork) { return yields(*fork); }) ||
         std::ranges::any_of(state.parked, [&](const ActiveSequence& parked) {
           return parked.is_branch() && yields(*parked.origin);
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
