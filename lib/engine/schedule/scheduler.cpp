// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/scheduler.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {
Scheduler::Scheduler(SchedulerLimits limits)
    : state_(std::move(limits)),
      admission_(state_.limits),
      order_(state_.limits),
      time_(state_.limits),
      loong_(state_.limits.scheduler == job::TeamScheduler::loongserve
                 ? std::optional<LoongDispatcher>(state_.limits)
                 : std::nullopt),
      former_(make_former(state_.limits)) {}

void Scheduler::add(batch::Request request, double since) {
  PECIA_CHECK(!request.turns.empty(), "a request without turns");
  for (size_t i = 0; i < request.turns.size(); ++i) {
    const batch::Turn& turn = request.turns[i];
    PECIA_CHECK(settled(turn) || !turn.tokens.empty(), "turn {} has no tokens", i);
    if (!turn.refused.empty()) state_.refuse_from(request, i, std::string(turn.refused));
  }
  for (const auto& [turn, why] : admission_.too_large(state_, request))
    if (request.turns[turn].continuation >= 0)  // a score has all continuations
      state_.refuse_from(request, 0, why);
    else
      state_.refuse(request, request.turns[turn], why);
  if (std::ranges::all_of(request.turns, batch::settled)) return;
  make_room_for_logprobs(request, state_.limits.prompt_logprobs, state_.limits.vocab);
  auto waiting = std::make_shared<RequestState>();
  waiting->ready_s = request.arrival_s.value_or(since);
  waiting->longest = longest_of(request);
  waiting->patience_s = order_.patience_s(state_, request);
  waiting->request = std::move(request);
  const auto place = static_cast<int64_t>(order_.place(state_, *waiting));
  state_.waiting.insert(state_.waiting.begin() + place, std::move(waiting));
}

bool Scheduler::wants_more() const {
  return state_.waiting.empty() || admission_.has_room(state_, 1, 1);
}

bool Scheduler::has_room_for(const batch::Request& request) const {
  if (state_.active.empty() && state_.parked.empty() && state_.waiting.empty() &&
      state_.forks.empty())
    return true;
  return tokens_needed(request) > state_.limits.most_slots() ||
         admission_.has_room(state_, admission_.to_begin(state_, request), first_tokens(request));
}

bool Scheduler::could_finish(int64_t prompt_tokens, int64_t answer_tokens, double now) const {
  return !limited() || seconds_alone(prompt_tokens, answer_tokens) <= time_.left_s(now);
}

double Scheduler::seconds_alone(int64_t prompt_tokens, int64_t answer_tokens) const {
  return time_.seconds_alone(state_, prompt_tokens, answer_tokens);
}

bool Scheduler::begins_anyway(double now) const {
  return !out_of_time_ && time_.begins_anyway(state_, now);
}

bool Scheduler::forget_assumed_end() {
  if (!time_.forget_assumed_end()) return false;
  std::ranges::move(std::exchange(state_.late, {}), std::back_inserter(state_.waiting));
  out_of_time_ = false;
  return true;
}

void Scheduler::forget_assumed_end_once_over(double now) {
  if (time_.left_s(now) <= 0) forget_assumed_end();
}

std::optional<Plan> Scheduler::next(double now) {
  if (out_of_time_) return {};
  const bool all_at_work = std::ssize(state_.under_way) >= state_.limits.plans_at_once();
  if (!state_.limits.elastic && all_at_work) return {};
  reconsider(now);
  admission_.demand().grow(state_);
  do begin_turns(now);
  while (state_.active.empty() && admission_.demand().yield_a_prefix(state_));
  PECIA_CHECK(!state_.active.empty() || state_.parked.empty(), "{} sequences cannot come back",
              state_.parked.size());
  if (state_.active.empty()) {
    given_up_ = given_up_ || !state_.forks.empty();
    return {};
  }
  std::optional<Plan> plan =
      former_->form(state_, order_.prompts(state_), time_.of_pass(state_, now), now);
  if (plan) {
    state_.under_way[state_.next_pass++] = {now, std::exchange(state_.moving_tokens, 0)};
    return plan;
  }
  out_of_time_ = state_.under_way.empty();
  PECIA_CHECK(limited() || !out_of_time_, "{} sequences run, and none can take part in a pass",
              running());
  return {};
}

/// Takes back the places of prompts that turn out too slow, and takes up late requests that fit
/// after all, as passes measured since may show.
void Scheduler::reconsider(double now) {
  if (!limited()) return;
  while (const auto sequence = time_.too_slow(state_, now)) state_.give_back(*sequence);
  std::erase_if(state_.late, [&](const auto& late) {
    const bool fits = time_.in_time_alone(state_, late->request, now);
    if (fits) state_.waiting.push_back(late);
    return fits;
  });
}

/// Begins requests and turns. A turn that is refused when it begins makes room for others.
void Scheduler::begin_turns(double now) {
  for (bool made_room = true; std::exchange(made_room, false);) {
    begin_requests(now);
    std::vector<int64_t> beginning;
    for (const ActiveSequence& sequence : state_.active)
      if (!sequence.begun && !sequence.again && sequence.replays == 0)
        beginning.push_back(sequence.id);
    for (const int64_t id : beginning) {
      const auto sequence = std::ranges::find(state_.active, id, &ActiveSequence::id);
      if (sequence == state_.active.end()) continue;  // it has yielded
      const bool in_time = time_.turn_in_time(state_, *sequence, now);
      given_up_ = given_up_ || !in_time;
      if (in_time && !admission_.demand().begin_turn(state_, *sequence)) continue;
      if (in_time) state_.start_turn(*sequence);
      if (sequence->begun) continue;
      state_.end(sequence);
      made_room = true;
    }
  }
}

/// Begins branches, then requests. A branch that comes first takes the place that the prefix or the
/// branch before has left, on the fork's credit. So a prefix never holds its keys while it waits.
void Scheduler::begin_requests(double now) {
  const auto room = [&] { return running() < state_.limits.max_sequences; };
  const auto in_time = [&](const auto& fork) { return time_.branch_in_time(state_, *fork, now); };
  admission_.demand().bring_back(state_);
  if (state_.all_await_return()) return;
  if (!state_.parked.empty()) return begin_waiting(now);
  for (const auto& fork : state_.forks)
    if (!admission_.demand().on() && order_.comes_first(*fork) && in_time(fork)) {
      PECIA_CHECK(room(), "no place for the branch of a prefix that ended");
      begin_branch(fork);
    }
  std::erase_if(state_.forks, [&](const auto& fork) {
    while (room() && fork->branches_left() && in_time(fork) && begin_branch(fork)) {
    }
    return !fork->branches_left();
  });
  // A prefix whose branches wait for slots is not joined by others that would wait, too.
  const auto waits = [&](const auto& fork) { return fork->active_branches == 0 && in_time(fork); };
  if (admission_.demand().on() && std::ranges::any_of(state_.forks, waits)) return;
  begin_waiting(now);
}

void Scheduler::begin_waiting(double now) {
  if (!loong_) begin_one_by_one(now);
  while (loong_ && begin_batches(now)) {
  }
  if (!state_.late.empty() && running() < state_.limits.max_sequences) begin_late(now);
}

/// Begins waiting requests, each by itself.
void Scheduler::begin_one_by_one(double now) {
  Room left = state_.waiting.empty() ? Room{} : state_.room();
  for (auto next = state_.waiting.begin();
       running() < state_.limits.max_sequences && next != state_.waiting.end();) {
    const auto request = *next;
    if (!time_.in_time_alone(state_, request->request, now)) {
      state_.late.push_back(request);
    } else if (!time_.in_time(state_, request->request, now) || !begin(request, left)) {
      if (!admission_.may_be_overtaken(state_, *request, left)) break;
      ++next;
      continue;
    }
    next = state_.waiting.erase(next);
  }
}

/// Begins requests with instances that are dealt to them together. With an end of time only one
/// does, and counts for the next. Returns whether others may begin now.
bool Scheduler::begin_batches(double now) {
  std::vector<std::shared_ptr<RequestState>> ready;
  const int64_t places = limited() ? std::min<int64_t>(1, state_.limits.max_sequences - running())
                                   : state_.limits.max_sequences - running();
  std::erase_if(state_.waiting, [&](const auto& waiting) {
    const bool late = !time_.in_time_alone(state_, waiting->request, now);
    if (late)
      state_.late.push_back(waiting);
    else if (std::ssize(ready) < places && time_.in_time(state_, waiting->request, now))
      ready.push_back(waiting);
    return late;
  });
  std::set<std::shared_ptr<RequestState>> begun;
  const auto begin = [&](const std::vector<Beginning>& beginning) {
    for (const Beginning& of : beginning) {
      const Grant grant = admission_.grant_of(state_, *of.request, of.slots);
      state_.begin(of.request, grant.reserved, grant.credit, grant.room);
      state_.active.back().readers = of.readers;
      state_.active.back().batch = of.batch;
      begun.insert(of.request);
    }
  };
  const auto has_begun = [&](const auto& request) { return begun.contains(request); };
  begin(loong_->dispatch(state_, admission_, ready));
  std::erase_if(ready, has_begun);
  begin(loong_->join(state_, admission_, ready));
  std::erase_if(state_.waiting, has_begun);
  return limited() && !begun.empty();
}

/// Begins a request that will not be answered in time, where begins_anyway holds.
void Scheduler::begin_late(double now) {
  if (!begins_anyway(now)) return;
  const auto chosen = state_.late.begin() + static_cast<int64_t>(time_.late_to_begin(state_));
  Room left = state_.room();
  if (!begin(*chosen, left)) return;
  (*chosen)->anyway = true;
  state_.late.erase(chosen);
}

bool Scheduler::begin(const std::shared_ptr<RequestState>& request, Room& left) {
  const auto grant = admission_.request(state_, *request, left);
  if (grant) state_.begin(request, grant->reserved, grant->credit, grant->room, grant->reading);
  return grant.has_value();
}

bool Scheduler::begin_branch(const std::shared_ptr<RequestState>& fork) {
  const auto grant = admission_.branch(state_, *fork);
  if (grant && !state_.map.contains(fork->prefix)) {
    state_.read_prefix_again(fork, grant->prefix);
    return false;  // it begins when that is done
  }
  if (grant && state_.map.is_parked(fork->prefix)) state_.bring_prefix_back(*fork, grant->prefix);
  if (grant) state_.begin_branch(fork, grant->reserved, grant->on_credit, grant->room);
  return grant.has_value();
}

std::vector<int64_t> Scheduler::commit(const Plan& plan, const std::vector<Outcome>& outcomes,
                                       double now) {
  std::vector<int64_t> given = schedule::commit(state_, plan, outcomes, now);
#ifndef NDEBUG
  verify();
#endif
  return given;
}

std::vector<batch::Finished> Scheduler::take_finished() {
  return std::exchange(state_.finished, {});
}

}  // namespace pecia::schedule
