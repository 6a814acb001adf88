// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/demand.hpp"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/base/core/random.hpp"
#include "lib/engine/schedule/key_move.hpp"

namespace pecia::schedule {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// Whether there is room for the keys of the sequence where keys are parked.
bool can_be_parked(const SchedulerState& state, int64_t sequence) {
  if (state.limits.parking_tokens == 0) return false;  // also where there are no keys yet
  const parallel::KvMap& map = state.map;
  const int64_t states = state.limits.state_tokens * (map.num_parked() + 1);
  for (int instance = 0; instance < map.instances(); ++instance)
    if (map.held_by(sequence, instance) + states >
        state.limits.parking_tokens - map.total_parked(instance))
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
  const double park_s = 2 * state.times.parking_s(state.moved_by(sequence));
  if (state.limits.elastic && own == 0) return {true, 0};
  const bool parks = !state.news.adds(sequence) && can_be_parked(state, sequence);
  if (parks && (!read_s || park_s <= *read_s)) return {false, park_s};
  return {true, read_s.value_or(0)};
}

/// Whether all ranks hear of the sequence with the next plan for the first time.
bool is_new(const SchedulerState& state, const ActiveSequence& sequence) {
  return !state.limits.elastic && !sequence.came_back && state.news.adds(sequence.id);
}

/// Whether the sequence may yield now. Where others read its prompt it is soon read.
bool may_yield(const SchedulerState& state, const ActiveSequence& sequence) {
  return sequence.in_pass == 0 && sequence.leaves < 0 && sequence.copy < 0 &&
         !is_new(state, sequence);
}

/// Free slots of the instances that answer.
Slots free_to_answer(const SchedulerState& state) {
  Slots free = state.free_slots();
  for (int32_t instance = 0; instance < state.limits.ring_size; ++instance)
    if (!state.limits.answers(instance)) free[instance] = 0;
  return free;
}

/// The instances of the sequence, or of the prefix of a fork, in the order in which further slots are
/// taken there: first the one that has its last token, and then those with most free slots. None but
/// where teams change.
std::vector<int32_t> near(const SchedulerState& state, int64_t sequence) {
  if (!state.limits.elastic) return {};
  const parallel::KvMap& map = state.map;
  const Slots free = state.free_slots();
  const auto has_last = [&](int32_t instance) {
    const auto& ranges = map.ranges(sequence, instance);
    return !ranges.empty() &&
           ranges.back().position(ranges.back().count - 1) + 1 == map.length(sequence);
  };
  std::vector<int32_t> instances = state.instances_of(sequence);
  std::ranges::stable_sort(instances, std::ranges::greater(), [&](int32_t instance) {
    return std::pair(has_last(instance), free[instance]);
  });
  return instances;
}

bool meets(const ActiveSequence& one, const ActiveSequence& other) {
  return std::ranges::any_of(one.instances, [&](int32_t instance) {
    return std::ranges::count(other.instances, instance) > 0;
  });
}

/// Slots that the sequence may take to grow. Where teams change, and it did not begin first, those of
/// another instance are not, if keys that are parked come back there.
Slots free_for(const SchedulerState& state, const ActiveSequence& sequence) {
  Slots free = free_to_answer(state);
  if (!state.limits.elastic || &sequence == &state.active.front()) return free;
  for (int32_t instance = 0; instance < state.limits.ring_size; ++instance)
    if (state.awaits_return(instance) && std::ranges::count(sequence.instances, instance) == 0)
      free[instance] = 0;
  return free;
}

/// Whether there is something else that would use the memory of a sequence that yields. If not, it
/// is of no use where an instance has room.
bool takes_place(const SchedulerState& state) {
  return !state.waiting.empty() || !state.parked.empty();
}

/// Whether keys are to leave an instance of the sequence before its slots are needed.
bool awaits_move(const SchedulerState& state, const ActiveSequence& sequence) {
  return std::ranges::any_of(state.active, [&](const ActiveSequence& other) {
    return other.leaves >= 0 && std::ranges::count(sequence.instances, other.leaves) > 0;
  });
}

/// Whether it leaves the cache with the next plan.
bool yields_now(const SchedulerState& state, int64_t sequence) {
  return std::ranges::count(state.news.parked, sequence) > 0 ||
         std::ranges::count(state.news.removed, sequence) > 0;
}

void note_scale_up(SchedulerState& state, const ActiveSequence& sequence,
                   const std::vector<int32_t>& before) {
  ++state.demand.scale_ups;
  for (const int32_t instance : sequence.instances)
    if (std::ranges::count(before, instance) == 0)
      state.yields.add({YieldKind::scaled_up, sequence.id, row_of(sequence),
                        state.own_tokens(sequence.id), -1, instance});
}

bool is_complete(const ActiveSequence& sequence) {
  return sequence.can_decode() && !sequence.has_room();
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

/// Room with which each rank has slots for the tokens that it holds of an answer. Drafts give some ranks
/// more than their share.
int64_t least_room(const SchedulerState& state, const ActiveSequence& sequence) {
  if (state.limits.layout_invariant || sequence.dealt.empty()) return 0;
  return (std::ranges::max(sequence.dealt) - 1) * state.limits.ring_size + 1;
}

}  // namespace

int64_t Demand::first_room(const SchedulerState& state, const batch::Request& request,
                           const batch::Turn& turn) const {
  const int64_t given = std::ssize(turn.answer.tokens), most = turn.max_new_tokens - given;
  if (most <= 0) return 0;
  if (state.needs.of_request(request) <= state.limits.all_slots() / state.limits.max_sequences)
    return most;
  const int64_t likely = state.lengths.likely(turn, given) - given;
  return std::min(most, (likely + block_ - 1) / block_ * block_);
}

/// The sequence that yields next, or the end if none may, so that `sequence` can grow. Where teams change it is one
/// on its instances. For the sequence that began first it is any, since all of them might have to.
std::list<ActiveSequence>::iterator Demand::victim(SchedulerState& state,
                                                   const ActiveSequence& sequence) const {
  const auto none = state.active.end();
  auto chosen = none;
  const auto cost = [&](const ActiveSequence& of) {
    return std::tuple(of.came_back, way_of(state, of.id, of.runs).seconds, state.own_tokens(of.id),
                      -of.id);
  };
  const auto find = [&](bool anywhere) {
    for (auto at = std::next(state.active.begin()); at != state.active.end(); ++at)
      if (may_yield(state, *at) && (anywhere || meets(*at, sequence)) &&
          (chosen == none || cost(*at) < cost(*chosen)))
        chosen = at;
  };
  find(!state.limits.elastic);
  if (chosen == none && &sequence == &state.active.front()) find(true);
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
  const Slots has = state.reserved(sequence.id);
  const int64_t more = slots - places_->count(has);
  if (more <= 0) return true;
  const bool elastic = state.limits.elastic;
  for (;;) {
    const auto grown =
        places_->grown(has, slots, near(state, sequence.id), free_for(state, sequence));
    const double growth_s = grown ? schedule::growth_s(state, sequence, *grown) : never;
    // What has keys there is in a pass, or makes room already.
    const bool must_wait =
        elastic && (!state.all_idle(sequence.instances) || awaits_move(state, sequence));
    if (must_wait && growth_s > 0) return false;
    const auto none = state.active.end();
    const bool helps = growth_s > 0 && (!grown || takes_place(state));
    const auto yields = helps ? victim(state, sequence) : none;
    const double yield_s = yields == none ? never : way_of(state, yields->id, yields->runs).seconds;
    const auto move = elastic && growth_s > 0 ? move_for(state, sequence, more) : std::nullopt;
    if (move && move->seconds < std::min(growth_s, yield_s)) {
      state.move(*move->sequence, move->from, move->to, move->more);
      return move->sequence == &sequence;
    }
    if (grown && growth_s <= yield_s) {
      const std::vector<int32_t> before = sequence.instances;
      state.grow(sequence, *grown);
      if (sequence.instances.size() > before.size()) note_scale_up(state, sequence, before);
      return true;
    }
    if (yields != none) {
      const bool itself = &*yields == &sequence;
      yield(state, yields);
      if (itself) return false;
      continue;
    }
    // Ranks have to hear of the others first, which have something to read.
    if ((!elastic && state.active.size() > 1) || !yield_a_prefix(state)) return false;
  }
}

void Demand::grow(SchedulerState& state) const {
  if (!on_) return;
  force_yield(state);
  // A sequence that yields leaves the list, so each is looked for after the one before.
  for (int64_t last = -1;;) {
    const auto next = std::ranges::find_if(state.active, [&](const ActiveSequence& sequence) {
      return sequence.id > last && is_complete(sequence) && state.all_idle(sequence.instances);
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
/// nothing but that might ever be done. Never the first one, so that an answer ends.
void Demand::force_yield(SchedulerState& state) const {
  if (!forced_yields_ || state.active.size() < 2 || state.forced_pass == state.next_pass) return;
  if (std::ranges::any_of(state.active, [](const auto& of) { return of.again.has_value(); }))
    return;
  std::vector<std::list<ActiveSequence>::iterator> could;
  for (auto at = std::next(state.active.begin()); at != state.active.end(); ++at)
    if (may_yield(state, *at)) could.push_back(at);
  if (could.empty()) return;  // all others are in passes
  const uint64_t drawn = mix(*forced_yields_, static_cast<uint64_t>(state.next_pass));
  state.forced_pass = state.next_pass;
  if (drawn % 2 == 0) return;
  const auto chosen = could[(drawn >> 8) % could.size()];
  if (const auto move = (drawn >> 40) % 2 == 0 ? cheapest_move(state, *chosen) : std::nullopt)
    state.move(*move->sequence, move->from, move->to, move->more);
  else
    yield(state, chosen);
}

/// Room that a sequence comes back with: for a likely answer.
int64_t Demand::room_to_return(const SchedulerState& state, const ActiveSequence& sequence) const {
  if (!sequence.begun || sequence.is_prefix) return sequence.room;  // it answers in branches
  const int64_t given = std::ssize(sequence.result.tokens);
  const int64_t likely = state.lengths.likely(sequence.current(), given) - given;
  const int64_t blocks = std::max<int64_t>(1, (likely + block_ - 1) / block_);
  const int64_t room =
      std::max(sequence.decoded + sequence.replays + blocks * block_, least_room(state, sequence));
  return std::min(room, sequence.longest_room());
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
    const auto places = of_return(state, *first, first->base + state.needs.of_generated(room));
    if (!places) return;
    if (forgotten) return state.read_prefix_again(origin, places->prefix);
    if (parked) state.bring_prefix_back(*origin, places->prefix);
    ActiveSequence& back = *first;
    back.room = room;
    back.deal_limit = state.needs.of_generated(room);
    state.bring_back(first, places->own);
  }
}

/// The slots with which the fork's prefix comes back or is read again; none of it where it is there;
/// absent: they are not free.
std::optional<Slots> Demand::of_prefix(const SchedulerState& state,
                                       const RequestState& fork) const {
  const Slots none(state.limits.ring_size);
  const bool forgotten = !state.map.contains(fork.prefix);
  if (!forgotten && !state.map.is_parked(fork.prefix)) return none;
  return places_->returned(
      forgotten ? none : state.held(fork.prefix), state.needs.of_prefix(fork.request),
      forgotten ? std::vector<int32_t>{} : near(state, fork.prefix), free_to_answer(state));
}

std::optional<Demand::Places> Demand::of_branch(const SchedulerState& state,
                                                const RequestState& fork, int64_t slots) const {
  const auto prefix = of_prefix(state, fork);
  if (!prefix) return {};
  std::vector<int32_t> with;
  if (state.map.contains(fork.prefix)) with = near(state, fork.prefix);
  auto own = places_->returned(Slots(state.limits.ring_size), slots, with,
                               without(free_to_answer(state), *prefix));
  return own ? std::optional(Places{std::move(*own), *prefix}) : std::nullopt;
}

std::optional<Demand::Places> Demand::of_return(const SchedulerState& state,
                                                const ActiveSequence& sequence,
                                                int64_t slots) const {
  if (!state.map.contains(sequence.id) && sequence.is_branch())
    return of_branch(state, *sequence.origin, slots);
  const bool forgotten = !state.map.contains(sequence.id);
  const Slots none(state.limits.ring_size);
  const auto prefix =
      sequence.is_branch() ? of_prefix(state, *sequence.origin) : std::optional(none);
  if (!prefix) return {};
  auto own = places_->returned(forgotten ? none : state.held(sequence.id), slots,
                               forgotten ? std::vector<int32_t>{} : near(state, sequence.id),
                               without(free_to_answer(state), *prefix));
  return own ? std::optional(Places{std::move(*own), *prefix}) : std::nullopt;
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
      state.park_prefix(fork);
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
