// SPDX-License-Identifier: Apache-2.0
/// Which requests and branches begin, and how a turn begins.

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/schedule/scheduler_state.hpp"

namespace pecia::schedule {
namespace {

int64_t sum_of_tokens(std::span<const int32_t> tokens) {
  return std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
}

std::vector<int64_t> without(std::vector<int64_t> slots, const std::vector<int64_t>& taken) {
  for (size_t instance = 0; instance < slots.size(); ++instance) slots[instance] -= taken[instance];
  return slots;
}

}  // namespace

/// Begins branches, then requests. A fork without a running branch comes first: its next branch
/// takes the place that the stem or the branch before has left, on the fork's credit. So a stem
/// never holds its keys while it waits.
void Scheduler::admit(Plan& plan, double now) {
  const auto room = [&] { return running() < limits_.max_sequences; };
  for (const auto& fork : forks_)
    if (fork->live_branches == 0 && branch_in_time(*fork, now)) {
      PECIA_CHECK(room(), "no place for the branch of a stem that ended");
      admit_branch(plan, fork);
    }
  for (auto fork = forks_.begin(); fork != forks_.end();) {
    while (room() && (*fork)->branches_left() && branch_in_time(**fork, now) &&
           admit_branch(plan, *fork)) {
    }
    fork = (*fork)->branches_left() ? std::next(fork) : forks_.erase(fork);
  }
  Room left = waiting_.empty() ? Room{} : this->room();
  for (auto next = waiting_.begin(); room() && next != waiting_.end();) {
    const auto family = *next;
    if (limited() && seconds_of(ahead_of(family->request)) > left_s(now)) {
      late_.push_back(family);
    } else if ((limited() && !in_time(ahead_of(family->request), now)) ||
               !admit_request(plan, family, left)) {
      if (!may_be_overtaken(*family, left)) break;
      ++next;
      continue;
    }
    next = waiting_.erase(next);
  }
  if (!late_.empty() && room()) begin_late(plan, now);
}

/// Whether others may begin before a request that cannot begin now. They may if it only waits for an
/// instance, but they do not take slots that it waits for.
bool Scheduler::may_be_overtaken(const Family& family, const Room& left) const {
  return waits_least() && tokens_needed(family.request) <= sum_of(free_of(left));
}

/// Sets how many slots are kept back for the family's branches.
void Scheduler::keep_back(Family& family, const Slots& slots) {
  family.kept.resize(limits_.ring_size);
  for (int instance = 0; instance < limits_.ring_size; ++instance)
    credits_[instance] += slots[instance] - std::exchange(family.kept[instance], slots[instance]);
}

/// Begins the request if it can; what it takes is then no longer in `left`.
bool Scheduler::admit_request(Plan& plan, const std::shared_ptr<Family>& family, Room& left) {
  const std::optional<Slots> slots = begin_in(left, *family);
  if (!slots) return false;
  Running running;
  running.family = family;
  running.sequence = next_sequence_++;
  running.timed = true;
  Slots reserved = *slots;
  if (family->is_fork()) {
    reserved = first_of(stem_slots(family->request), *slots);
    family->stem = running.sequence;
    family->credit = without(*slots, reserved);
    keep_back(*family, family->credit);
    running.is_stem = true;
  }
  running.end = family->is_fork() ? 1 : family->request.turns.size();
  add_sequence(plan, running, reserved);
  return true;
}

/// Adds the sequence to the map and to the plan, and lets it run.
void Scheduler::add_sequence(Plan& plan, Running& running, const Slots& reserved) {
  const int64_t parent = running.is_branch() ? running.family->stem : NewSequence::no_parent;
  map_.add(running.sequence, reserved, running.is_branch() ? std::optional(parent) : std::nullopt);
  plan.added.push_back(
      {running.sequence, {parent, 0, reserved, {}}, keeps_tokens(running.family->request)});
  if (limits_.elastic) running.instances = instances_of(running.sequence);
  running_.push_back(std::move(running));
}

/// Starts the family's next branch, on its credit or on free memory.
bool Scheduler::admit_branch(Plan& plan, const std::shared_ptr<Family>& family) {
  const int64_t needed = branch_slots(family->request, family->next_branch);
  Slots reserved;
  Running running;
  running.uses_credit = !family->credit_used;
  if (running.uses_credit) {
    reserved = first_of(needed, family->kept);
    family->credit_used = true;
    keep_back(*family, without(family->kept, reserved));
  } else if (const auto slots = places_beside(*family, needed)) {
    reserved = *slots;
  } else {
    return false;
  }
  running.family = family;
  running.turn = family->next_branch;
  running.end = family->next_branch = end_of_branch(family->request, running.turn);
  running.timed = true;
  running.sequence = next_sequence_++;
  ++family->live_branches;
  family->skip_settled();
  add_sequence(plan, running, reserved);
  return true;
}

/// Free slots for another branch of a fork. Where teams change, they are on the instances that the
/// fork has already: its branches meet there in any case.
std::optional<Scheduler::Slots> Scheduler::places_beside(const Family& family,
                                                         int64_t needed) const {
  Slots free = free_slots();
  for (int instance = 0; limits_.elastic && instance < limits_.ring_size; ++instance)
    if (map_.reserved(family.stem, instance) + family.credit[instance] == 0) free[instance] = 0;
  return places_for(needed, free);
}

/// Sets up the sequence's turn: what to feed, where the answer begins, how long it may be. A turn
/// that cannot run is refused with all that depend on it; then `begun` stays false.
void Scheduler::start_turn(Plan& plan, Running& running) {
  Family& family = *running.family;
  auto& turns = family.request.turns;
  while (!running.is_stem && running.turn < running.end && turns[running.turn].finished) {
    const Turn& done = turns[running.turn++];
    running.unfed.insert(running.unfed.end(), done.tokens.begin(), done.tokens.end());
    running.unfed.insert(running.unfed.end(), done.answer.tokens.begin(), done.answer.tokens.end());
  }
  if (running.turn == running.end || !turns[running.turn].refused.empty()) return;

  Turn& turn = turns[running.turn];
  const int64_t cached = map_.length(running.sequence);
  std::span<const int32_t> prompt;
  if (running.is_branch() && running.turn == 0) {
    running.prompt_begin = 0;
    running.answer_begin = cached;
  } else {
    prompt = turn.tokens;
    running.prompt_begin = cached + static_cast<int64_t>(running.unfed.size());
    running.answer_begin = running.prompt_begin + static_cast<int64_t>(turn.tokens.size());
  }
  const int64_t room = limits_.max_positions - running.answer_begin;
  if (room < (turn.max_new_tokens > 0 ? 1 : 0)) {
    refuse_from(
        family.request, running.turn,
        fmt::format("{} tokens with what came before, the model's length is {}: shorten the "
                    "prompt, or set model.rope_scaling; then --retry-failed",
                    running.answer_begin, limits_.max_positions));
    return;
  }
  running.result = turn.answer;
  running.result.prompt_tokens = prompt_tokens(turn);
  running.result.truncated_tokens = turn.truncated_tokens;
  running.result.cached_tokens = static_cast<int32_t>(running.answer_begin) - prompt_tokens(turn);
  running.max_new_tokens = std::min<int64_t>(turn.max_new_tokens, room);
  running.deal_limit = answer_slots(turn);
  running.dealt.assign(limits_.ring_size, 0);
  if (limits_.layout_invariant) {
    running.deal_shift = sum_of_tokens(std::span(turn.tokens).subspan(turn.stem_end_tokens));
    if (turn.shared_tokens > 0 && turn.stem_end_tokens == 0)  // as of the whole prompt
      running.deal_shift += sum_of_tokens(turns.front().tokens);
  }
  running.earlier_decode_s = turn.answer.decode_s;
  running.stop_strings.reset();
  if (!turn.stop.empty()) {
    PECIA_CHECK(limits_.detokenizer, "stop strings without a detokenizer");
    running.stop_strings.emplace(*limits_.detokenizer, turn.stop);
    for (const int32_t token : running.result.tokens) running.stop_strings->read(token);
  }
  running.shape.reset();
  if (!turn.shape.empty()) {
    PECIA_CHECK(limits_.grammars, "an answer with a shape, without grammars");
    running.shape = limits_.grammars->matcher(turn.shape);
    for (const int32_t token : running.result.tokens) running.shape->accept(token);
  }
  if (running.is_branch() && running.turn == 0) running.first_token = family.stem_answered;
  const auto given = static_cast<int64_t>(running.result.tokens.size());
  running.samples =
      running.max_new_tokens > given && !(running.is_stem && (given > 0 || turn.finished));
  if (running.unfed.empty() && (running.is_stem || given == 0)) {
    running.feed = prompt;
  } else if (running.is_branch() && running.turn == 0 && family.stem_answered) {
    running.unfed = running.result.tokens;  // the stem has just given it: it is decoded
  } else {
    const auto append = [&](std::span<const int32_t> tokens) {
      running.unfed.insert(running.unfed.end(), tokens.begin(), tokens.end());
    };
    append(prompt);
    // A stem is fed its prompt alone. A branch is fed the answer that an earlier run began.
    if (!running.is_stem) append(running.result.tokens);
    running.joined = std::exchange(running.unfed, {});
    running.feed = running.joined;
  }
  running.fed = 0;
  // The last known token is always fed: its output is not in the cache.
  running.restore_end = 0;
  if (cached == 0 && !running.is_branch())
    running.restore_end =
        std::min<int64_t>(family.request.saved.tokens, std::ssize(running.feed) - 1) /
        restore_unit() * restore_unit();
  if (running.restore_end < family.request.saved.least) running.restore_end = 0;
  running.begun = true;
  running.timed = false;
  sharing_.requests += turn.shared_tokens > 0;
  sharing_.shared_tokens += turn.shared_tokens;
  if (turn.shared_tokens == 0) sharing_.repeated_tokens += turn.stem_end_tokens;
  if (const auto known = known_.find(running.sequence); known != known_.end())
    known->second.now.assign(limits_.ring_size, false);  // no instance knows of the turn yet
  if (running.samples)
    plan.turns.push_back({running.sequence, turn.params, turn.random_key, running.answer_begin,
                          turn.shape, turn.bias});
}

}  // namespace pecia::schedule
