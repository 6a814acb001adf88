// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/scheduler_state.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {

Slots without(Slots slots, const Slots& taken) {
  for (size_t instance = 0; instance < slots.size(); ++instance) slots[instance] -= taken[instance];
  return slots;
}

SchedulerState::SchedulerState(SchedulerLimits given)
    : limits(std::move(given)),
      needs(limits),
      times(limits),
      map(limits.ring_size),
      kept_back(limits.ring_size),
      doing(limits.ring_size, Doing::nothing),
      drafter(limits) {
  limits.verify();
  for (const auto& [max_new_tokens, tokens] : limits.earlier_answers)
    lengths.add_earlier(max_new_tokens, tokens);
}

void SchedulerState::refuse(batch::Request& request, batch::Turn& turn, const std::string& why) {
  batch::Turn& owner = owner_of(request, turn);
  if (&owner == &turn) return refuse(turn, why);
  turn.refused = why;
  turn.recorded = true;
  if (!owner.refused.empty()) return;
  owner.finished = false;  // it had been read, and waited for its continuations
  refuse(owner, why);
}

void SchedulerState::refuse(batch::Turn& turn, const std::string& why) {
  if (turn.finished) return;
  turn.refused = why;
  if (std::exchange(turn.recorded, true) || turn.row == batch::Turn::no_row) return;
  batch::Finished failed{turn.row, io::TurnState::failed, {}};
  failed.result.finish_reason = io::FinishReason::failed;
  failed.result.error = why;
  failed.result.prompt_tokens = prompt_tokens(turn);
  failed.result.truncated_tokens = turn.truncated_tokens;
  finished.push_back(std::move(failed));
}

void SchedulerState::refuse_from(batch::Request& request, size_t first, const std::string& why) {
  const std::string after = "an earlier turn of this request failed: " + why;
  refuse(request, request.turns[first], why);
  const bool branch = is_fork(request) && first > 0;
  const size_t end = branch ? end_of_branch(request, first) : request.turns.size();
  for (size_t later = first + 1; later < end; ++later) {
    batch::Turn& turn = request.turns[later];
    refuse(request, turn, turn.refused.empty() ? after : std::string(turn.refused));
  }
}

/// Sets how many slots are kept back for the fork's branches.
void SchedulerState::keep_back(RequestState& fork, const Slots& slots) {
  fork.kept_back.resize(limits.ring_size);
  for (int instance = 0; instance < limits.ring_size; ++instance)
    kept_back[instance] +=
        slots[instance] - std::exchange(fork.kept_back[instance], slots[instance]);
}

void SchedulerState::begin(const std::shared_ptr<RequestState>& request, const Slots& reserved,
                           const Slots& credit, int64_t room, const Slots& reading) {
  ActiveSequence sequence;
  sequence.origin = request;
  sequence.is_prefix = request->is_fork();
  sequence.end = sequence.is_prefix ? 1 : request->request.turns.size();
  if (sequence.is_prefix) {
    request->prefix = next_sequence_;
    request->credit = credit;
    keep_back(*request, credit);
  }
  activate(std::move(sequence), reserved, room, reading);
}

void SchedulerState::begin_branch(const std::shared_ptr<RequestState>& fork, const Slots& reserved,
                                  bool on_credit, int64_t room) {
  ActiveSequence sequence;
  sequence.origin = fork;
  sequence.uses_credit = on_credit;
  if (on_credit) {
    fork->credit_used = true;
    keep_back(*fork, without(fork->kept_back, reserved));
  }
  sequence.turn = fork->next_branch;
  sequence.end = fork->next_branch = end_of_branch(fork->request, sequence.turn);
  ++fork->active_branches;
  fork->skip_settled();
  activate(std::move(sequence), reserved, room);
}

/// Adds the sequence to the map and to the news, and lets it run.
void SchedulerState::activate(ActiveSequence sequence, const Slots& reserved, int64_t room,
                              const Slots& reading) {
  sequence.id = next_sequence_++;
  sequence.timed = true;
  sequence.room = room;
  sequence.base = (limits.elastic ? std::accumulate(reserved.begin(), reserved.end(), int64_t{0})
                                  : reserved.front()) -
                  needs.of_generated(room);
  sequence.most = needs.alone(sequence.request(), sequence.is_prefix ? 0 : sequence.turn);
  introduce(sequence, reading.empty() ? reserved : reading);
  if (!reading.empty()) map.add(sequence.copy = next_sequence_++, reserved);
  if (limits.elastic) sequence.instances = instances_of(sequence.id);
  active.push_back(std::move(sequence));
  demand.most_at_once = std::max(demand.most_at_once, std::ssize(active));
}

void SchedulerState::go_on_as_copy(ActiveSequence& sequence) {
  remove(sequence.id);
  sequence.id = std::exchange(sequence.copy, -1);
  sequence.instances = instances_of(sequence.id);
  sequence.changed = true;
  if (sequence.is_prefix) sequence.origin->prefix = sequence.id;
}

void SchedulerState::introduce(const ActiveSequence& sequence, const Slots& reserved) {
  const RequestState& origin = *sequence.origin;
  const int64_t parent = sequence.is_branch() ? origin.prefix : NewSequence::no_parent;
  map.add(sequence.id, reserved, sequence.is_branch() ? std::optional(parent) : std::nullopt);
  news.added.push_back({sequence.id, {parent, 0, reserved, {}}, keeps_tokens(origin.request)});
}

/// Says how the tokens of the sequence's turn are sampled.
void SchedulerState::tell_of_turn(const ActiveSequence& sequence) {
  const batch::Turn& turn = sequence.current();
  news.turns.push_back(
      {sequence.id, turn.params, turn.random_key, sequence.answer_begin, turn.shape, turn.bias});
}

void SchedulerState::end_answer(ActiveSequence& sequence) const {
  std::vector<int64_t> dealt = sequence.dealt;
  if (sequence.replays > 0 && sequence.home >= 0) dealt[sequence.home] += sequence.replays;
  sequence.base += limits.elastic || limits.layout_invariant || dealt.empty()
                       ? needs.of_generated(sequence.decoded + sequence.replays)
                       : std::ranges::max(dealt);
  sequence.room = sequence.decoded = sequence.reread = 0;
  sequence.is_between_turns = true;
}

void SchedulerState::grow(ActiveSequence& sequence, const Slots& reserved) {
  for (int instance = 0; instance < limits.ring_size; ++instance)
    map.set_reserved(sequence.id, instance, reserved[instance]);
  if (limits.elastic) return moved(sequence);
  // Ranks that hear of the sequence with the next plan hear of what it has by then.
  const auto is_it = [&](const auto& told) { return told.sequence == sequence.id; };
  if (const auto added = std::ranges::find_if(news.added, is_it); added != news.added.end())
    added->state.reserved = reserved;
  else if (const auto back = std::ranges::find_if(news.returned, is_it);
           back != news.returned.end())
    back->reserved = reserved;
  else if (const auto more = std::ranges::find_if(news.grown, is_it); more != news.grown.end())
    more->reserved = reserved;
  else
    news.grown.push_back({sequence.id, reserved});
}

/// The sequence has other slots than its instances were told, where teams change.
void SchedulerState::moved(ActiveSequence& sequence) const {
  sequence.instances = instances_of(sequence.id);
  sequence.changed = true;
}

void SchedulerState::move(ActiveSequence& sequence, int32_t from, int32_t to, int64_t more) {
  const int64_t there = map.reserved(sequence.id, to);
  map.set_reserved(sequence.id, to, there + map.reserved(sequence.id, from) + more);
  sequence.leaves = from;
  moved(sequence);
  const int64_t tokens = map.held(sequence.id, from);
  yields.add({YieldKind::moved, sequence.id, row_of(sequence), tokens, from, to});
  ++demand.moved;
  demand.moved_tokens += tokens;
}

/// A sequence that yields waits for no pass, and is read on its own instances when it is back.
void SchedulerState::leave_team(ActiveSequence& sequence) {
  sequence.readers.clear();
  sequence.batch = sequence.leaves = -1;
  sequence.has_waited = false;
}

void SchedulerState::park(std::list<ActiveSequence>::iterator sequence) {
  leave_team(*sequence);
  if (park_keys(sequence->id, row_of(*sequence)) && sequence->begun) ++sequence->result.yields;
  const auto later = std::ranges::upper_bound(parked, sequence->id, {}, &ActiveSequence::id);
  parked.splice(later, active, sequence);
}

void SchedulerState::bring_back(std::list<ActiveSequence>::iterator sequence,
                                const Slots& reserved) {
  if (!map.contains(sequence->id)) return bring_forgotten_back(sequence, reserved);
  bring_keys_back(sequence->id, row_of(*sequence), reserved);
  put_back(sequence);
}

void SchedulerState::put_back(std::list<ActiveSequence>::iterator sequence) {
  sequence->came_back = true;
  if (limits.elastic) moved(*sequence);
  const auto later = std::ranges::upper_bound(active, sequence->id, {}, &ActiveSequence::id);
  active.splice(later, parked, sequence);
  demand.most_at_once = std::max(demand.most_at_once, std::ssize(active));
}

void SchedulerState::park_prefix(const RequestState& fork) {
  park_keys(fork.prefix, first_row(fork));
}

bool SchedulerState::park_keys(int64_t sequence, int64_t row) {
  const auto is_it = [&](const auto& told) { return told.sequence == sequence; };
  map.park(sequence);
  std::erase_if(news.grown, is_it);
  if (std::erase_if(news.returned, is_it) > 0) {
    demand.returned_tokens -= own_tokens(sequence);
    moving_tokens -= moved_by(sequence);
    yields.take_return_back(sequence);
    return false;
  }
  yields.add({YieldKind::parked, sequence, row, own_tokens(sequence)});
  news.parked.push_back(sequence);
  ++demand.parked;
  if (limits.elastic) return true;  // it is counted when its instances hear of it
  demand.parked_tokens += own_tokens(sequence);
  moving_tokens += moved_by(sequence);
  return true;
}

void SchedulerState::bring_prefix_back(const RequestState& fork, const Slots& reserved) {
  bring_keys_back(fork.prefix, first_row(fork), reserved);
}

void SchedulerState::bring_keys_back(int64_t sequence, int64_t row, const Slots& reserved) {
  map.bring_back(sequence, reserved);
  yields.add({YieldKind::returned, sequence, row, own_tokens(sequence)});
  if (limits.elastic) return;  // likewise
  news.returned.push_back({sequence, reserved});
  demand.returned_tokens += own_tokens(sequence);
  moving_tokens += moved_by(sequence);
}

namespace {

/// Notes how the item's tokens are computed.
void note_run(ActiveSequence& sequence, const PlanItem& item) {
  const bool generated = !item.rows.is_shared();
  std::vector<TokenRun>& runs = sequence.runs;
  const bool goes_on = !runs.empty() && runs.back().generated == generated &&
                       runs.back().prompt_end == item.prompt_end;
  if (!goes_on)
    runs.push_back(
        {0, generated, item.prompt_end, sequence.current().stem_end_tokens, sequence.deal_shift});
  runs.back().tokens += item.rows.count;
}

}  // namespace

void SchedulerState::cache(ActiveSequence& sequence, const PlanItem& item,
                           const parallel::Team& team) {
  const parallel::Placement placement{item.rows.sequence, item.kept, item.gathers};
  map.append(item.rows, team, item.kept.empty() ? nullptr : &placement);
  if (item.gathers != 0) sequence.instances = instances_of(sequence.id);
  sequence.in_pass += item.rows.count;
  if (limits.on_demand && !sequence.again) note_run(sequence, item);
  if (std::vector<int32_t>* const known = known_tokens(sequence))
    known->insert(known->end(), item.tokens.begin(), item.tokens.end());
}

/// Where the sequence's own cached tokens are known; null: nowhere.
std::vector<int32_t>* SchedulerState::known_tokens(ActiveSequence& sequence) const {
  if (!sequence.is_branch()) return &sequence.origin->cached;
  const bool known = limits.on_demand || limits.drafts.on() || keeps_tokens(sequence.request());
  return known ? &sequence.own_cached : nullptr;
}

void SchedulerState::drop_drafted(ActiveSequence& sequence, const PlanItem& item, int64_t tokens) {
  if (tokens == 0) return;
  const int64_t dropped = limits.has_states ? item.rows.count : tokens;
  sequence.replays = dropped - tokens;
  sequence.unfed.insert(sequence.unfed.begin(), item.tokens.begin(),
                        item.tokens.begin() + sequence.replays);
  const int64_t length = map.length(sequence.id) - dropped;
  map.shorten(sequence.id, length);
  news.shortened.push_back({sequence.id, length});
  sequence.decoded -= dropped;
  if (!limits.layout_invariant && !limits.elastic) sequence.dealt[item.rows.owner] -= dropped;
  if (limits.on_demand) sequence.runs.back().tokens -= dropped;
  if (limits.on_demand && sequence.runs.back().tokens == 0) sequence.runs.pop_back();
  std::vector<int32_t>& known = *known_tokens(sequence);
  known.resize(known.size() - dropped);
}

void SchedulerState::has_replayed(ActiveSequence& sequence, int64_t tokens) {
  sequence.unfed.erase(sequence.unfed.begin(), sequence.unfed.begin() + tokens);
  sequence.replays -= tokens;
  if (!sequence.begun) sequence.decoded = 0;  // of a turn that has ended
}

void SchedulerState::end(std::list<ActiveSequence>::iterator sequence) {
  const std::shared_ptr<RequestState> origin = sequence->origin;
  if (!sequence->is_prefix) remove(sequence->id);
  if (sequence->copy >= 0) remove(sequence->copy);
  if (origin->is_fork()) {
    if (sequence->is_prefix) {
      origin->skip_settled();
      if (origin->branches_left()) forks.push_back(origin);
    } else {
      --origin->active_branches;
    }
    if (sequence->uses_credit) {
      origin->credit_used = false;
      keep_back(*origin, origin->credit);
    }
    if (!origin->branches_left()) keep_back(*origin, Slots(limits.ring_size));
    if (!origin->branches_left() && origin->active_branches == 0) {
      yields.end(origin->prefix, first_row(*origin));
      remove(origin->prefix);
    }
  }
  active.erase(sequence);
}

void SchedulerState::give_back(int64_t id) {
  const auto sequence = std::ranges::find(active, id, &ActiveSequence::id);
  const std::shared_ptr<RequestState> origin = sequence->origin;
  keep_back(*origin, Slots(limits.ring_size));
  origin->credit = origin->kept_back;
  origin->cached.clear();
  origin->computed_s = 0;
  remove(id);
  if (sequence->copy >= 0) remove(sequence->copy);
  active.erase(sequence);
  late.push_back(origin);
}

/// Frees the sequence's slots. Ranks that know it have to hear that it has ended.
void SchedulerState::remove(int64_t sequence) {
  map.remove(sequence);
  const auto is_it = [&](const auto& told) { return told.sequence == sequence; };
  std::erase(news.parked, sequence);
  std::erase_if(news.returned, is_it);
  std::erase_if(news.grown, is_it);
  std::erase_if(news.shortened, is_it);
  if (std::erase_if(news.added, is_it) == 0) return news.removed.push_back(sequence);
  std::erase_if(news.turns, is_it);
}

void SchedulerState::verify() const {
  map.verify();
  std::set<int64_t> known;
  const auto add = [&](const ActiveSequence& sequence, bool is_parked) {
    const bool is_there = map.contains(sequence.id);
    PECIA_CHECK(is_parked || is_there, "active sequence {} has no slots", sequence.id);
    if (is_there) known.insert(sequence.id);
    if (sequence.copy >= 0) {
      known.insert(sequence.copy);
      PECIA_CHECK(map.length(sequence.copy) == map.length(sequence.id),
                  "sequence {} has {} tokens, its copy {}", sequence.id, map.length(sequence.id),
                  map.length(sequence.copy));
    }
    if (sequence.is_branch() && map.contains(sequence.origin->prefix))
      known.insert(sequence.origin->prefix);
    if (!is_there || !limits.on_demand) return;
    PECIA_CHECK(map.is_parked(sequence.id) == is_parked, "sequence {} is {}active and {}parked",
                sequence.id, is_parked ? "not " : "", is_parked ? "not " : "");
    int64_t tokens = 0;
    for (const TokenRun& run : sequence.runs) tokens += run.tokens;
    if (sequence.again) tokens -= sequence.again->left() - sequence.in_pass;
    PECIA_CHECK(own_tokens(sequence.id) == tokens, "sequence {} has {} tokens, {} are known",
                sequence.id, own_tokens(sequence.id), tokens);
  };
  for (const ActiveSequence& sequence : active) add(sequence, false);
  for (const ActiveSequence& sequence : parked) add(sequence, true);
  for (const auto& fork : forks)
    if (map.contains(fork->prefix)) known.insert(fork->prefix);
  for (const int64_t sequence : known)
    PECIA_CHECK(yields.outside().is_parked(sequence) == map.is_parked(sequence),
                "by the journal of yields sequence {} is {}parked", sequence,
                map.is_parked(sequence) ? "not " : "");
  PECIA_CHECK(std::ssize(known) == map.size(), "{} sequences are in the map, {} are known",
              map.size(), known.size());
  for (const int64_t free : free_slots()) PECIA_CHECK(free >= 0, "{} slots are free", free);
}

std::vector<batch::Finished> SchedulerState::partial() const {
  std::vector<batch::Finished> partial;
  for (const auto* const sequences : {&active, &parked})
    for (const ActiveSequence& sequence : *sequences)
      if (sequence.begun && !sequence.result.tokens.empty() && !settled(sequence.current()))
        partial.push_back({sequence.current().row, io::TurnState::partial, sequence.result});
  return partial;
}

Slots SchedulerState::free_slots() const {
  Slots free(limits.ring_size);
  for (int instance = 0; instance < limits.ring_size; ++instance)
    free[instance] = limits.kv_tokens - map.total_reserved(instance) - kept_back[instance];
  return free;
}

bool SchedulerState::awaits_return(int32_t instance) const {
  return map.total_parked(instance) > 0;
}

bool SchedulerState::all_await_return() const {
  // What was forgotten can be read again on any instance.
  return std::ranges::any_of(parked, [&](const ActiveSequence& sequence) {
    return !limits.elastic || !map.contains(sequence.id);
  });
}

Slots SchedulerState::reserved(int64_t sequence) const {
  Slots slots(limits.ring_size);
  for (int instance = 0; instance < limits.ring_size; ++instance)
    slots[instance] = map.reserved(sequence, instance);
  return slots;
}

Slots SchedulerState::held(int64_t sequence) const {
  Slots tokens(limits.ring_size);
  for (int instance = 0; instance < limits.ring_size; ++instance)
    tokens[instance] = map.held_by(sequence, instance);
  return tokens;
}

bool SchedulerState::all_idle(const std::vector<int32_t>& instances) const {
  return std::ranges::all_of(instances,
                             [&](int32_t instance) { return doing[instance] == Doing::nothing; });
}

Room SchedulerState::room() const {
  Room room(limits.ring_size);
  const Slots free = free_slots();
  for (size_t instance = 0; instance < room.size(); ++instance) {
    room[instance].idle = doing[instance] == Doing::nothing;
    room[instance].free_slots = awaits_return(static_cast<int32_t>(instance)) ? 0 : free[instance];
  }
  for (const ActiveSequence& sequence : active) {
    const int64_t left = sequence.begun ? sequence.unread() : first_tokens(sequence.request());
    for (const int32_t instance : sequence.instances) {
      ++room[instance].sequences;
      if (left > 0) room[instance].unread.push_back({sequence.origin->due_s(), left});
    }
  }
  return room;
}

int64_t SchedulerState::length(const ActiveSequence& sequence) const {
  if (map.contains(sequence.id)) return map.length(sequence.id);
  return sequence.is_branch() ? first_tokens(sequence.request()) : 0;
}

int64_t SchedulerState::own_tokens(int64_t sequence) const {
  const auto parent = map.parent(sequence);
  return map.length(sequence) - (parent ? map.length(*parent) : 0);
}

int64_t SchedulerState::moved_by(int64_t sequence) const {
  const int64_t own = limits.elastic ? std::ranges::max(held(sequence)) : own_tokens(sequence);
  return own == 0 ? 0 : own + limits.state_tokens;
}

std::vector<int32_t> SchedulerState::instances_of(int64_t sequence) const {
  std::vector<int32_t> own;
  const std::vector<int> holders = map.holders(sequence);
  for (int instance = 0; instance < limits.ring_size; ++instance)
    if (map.reserved(sequence, instance) > 0 || std::ranges::count(holders, instance) > 0)
      own.push_back(instance);
  return own;
}

std::vector<ShortenedSequence> SchedulerState::shortened() const {
  if (!limits.elastic || !limits.drafts.on()) return news.shortened;
  std::vector<ShortenedSequence> all;
  for (const auto* const sequences : {&active, &parked})
    for (const ActiveSequence& sequence : *sequences)
      if (!sequence.is_prefix && map.contains(sequence.id))
        all.push_back({sequence.id, map.length(sequence.id)});
  return all;
}

int64_t SchedulerState::forks_under_way() const {
  std::set<const RequestState*> found;
  for (const auto* const sequences : {&active, &parked})
    for (const ActiveSequence& sequence : *sequences)
      if (sequence.origin->is_fork()) found.insert(sequence.origin.get());
  for (const auto& fork : forks) found.insert(fork.get());
  return std::ssize(found);
}

std::vector<size_t> SchedulerState::followers(const ActiveSequence& sequence) const {
  std::vector<size_t> followers;
  const auto& turns = sequence.request().turns;
  const auto add = [&](size_t turn) {
    if (!settled(turns[turn]) && weighs_tokens(turns[turn])) followers.push_back(turn);
  };
  if (sequence.is_prefix)
    for (size_t branch = 1; branch < turns.size(); ++branch) add(branch);
  if (!sequence.origin->is_fork() && !sequence.samples && sequence.turn + 1 < turns.size())
    add(sequence.turn + 1);
  return followers;
}

}  // namespace pecia::schedule
