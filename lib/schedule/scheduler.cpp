// SPDX-License-Identifier: Apache-2.0
#include "lib/schedule/scheduler.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "lib/parallel/virtual_ranks.hpp"
#include "lib/schedule/elastic_urgency.hpp"
#include "lib/schedule/scheduler_parts.hpp"

namespace pecia::schedule {

Scheduler::Scheduler(SchedulerLimits limits)
    : state_(std::move(limits)),
      admission_(state_.limits),
      order_(state_.limits),
      time_(state_.limits),
      unheard_(state_.limits.ring_size),
      busy_until_(state_.limits.ring_size, 0) {}

Scheduler::~Scheduler() = default;

void Scheduler::add(Request request, double since) {
  PECIA_CHECK(!request.turns.empty(), "a request without turns");
  for (size_t i = 0; i < request.turns.size(); ++i) {
    const Turn& turn = request.turns[i];
    PECIA_CHECK(settled(turn) || !turn.tokens.empty(), "turn {} has no tokens", i);
    if (!turn.refused.empty()) state_.refuse_from(request, i, std::string(turn.refused));
  }
  for (const auto& [turn, why] : admission_.too_large(state_, request))
    state_.refuse(request.turns[turn], why);
  if (std::all_of(request.turns.begin(), request.turns.end(), settled)) return;
  if (state_.limits.prompt_logprobs != 0)
    for (Turn& turn : request.turns) {
      constexpr float no_prediction = std::numeric_limits<float>::quiet_NaN();
      const size_t width = top_width(state_.limits.prompt_logprobs, state_.limits.vocab);
      turn.answer.prompt_logprobs.assign(turn.tokens.size(), no_prediction);
      turn.answer.prompt_top_logprobs.assign(turn.tokens.size() * width, no_prediction);
      if (state_.limits.prompt_logprobs > 0)
        turn.answer.prompt_top_tokens.assign(turn.tokens.size() * width, -1);
    }
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

bool Scheduler::has_room_for(const Request& request) const {
  if (state_.active.empty() && state_.waiting.empty() && state_.forks.empty()) return true;
  const int64_t needed = tokens_needed(request);
  return needed > state_.limits.most_slots() ||
         admission_.has_room(state_, needed, first_tokens(request));
}

/// What passes are cut for: the team's instances where teams change.
int32_t Scheduler::virtual_ranks_of_rows() const {
  if (state_.limits.elastic) return 0;
  return state_.limits.layout_invariant ? parallel::layout_ranks : state_.limits.ring_size;
}

bool Scheduler::begin_request(const std::shared_ptr<RequestState>& request, Room& left) {
  const auto grant = admission_.request(state_, *request, left);
  if (grant) state_.begin(request, grant->reserved, grant->credit);
  return grant.has_value();
}

bool Scheduler::begin_branch(const std::shared_ptr<RequestState>& fork) {
  const auto grant = admission_.branch(state_, *fork);
  if (grant) state_.begin_branch(fork, grant->reserved, grant->on_credit);
  return grant.has_value();
}

/// Begins branches, then requests. A branch that comes first takes the place that the prefix or the
/// branch before has left, on the fork's credit. So a prefix never holds its keys while it waits.
void Scheduler::begin_requests(double now) {
  const auto room = [&] { return running() < state_.limits.max_sequences; };
  const auto in_time = [&](const auto& fork) { return time_.branch_in_time(state_, *fork, now); };
  for (const auto& fork : state_.forks)
    if (order_.comes_first(*fork) && in_time(fork)) {
      PECIA_CHECK(room(), "no place for the branch of a prefix that ended");
      begin_branch(fork);
    }
  std::erase_if(state_.forks, [&](const auto& fork) {
    while (room() && fork->branches_left() && in_time(fork) && begin_branch(fork)) {
    }
    return !fork->branches_left();
  });
  Room left = state_.waiting.empty() ? Room{} : admission_.room(state_);
  for (auto next = state_.waiting.begin(); room() && next != state_.waiting.end();) {
    const auto request = *next;
    if (!time_.in_time_alone(state_, request->request, now)) {
      state_.late.push_back(request);
    } else if (!time_.in_time(state_, request->request, now) || !begin_request(request, left)) {
      if (!admission_.may_be_overtaken(state_, *request, left)) break;
      ++next;
      continue;
    }
    next = state_.waiting.erase(next);
  }
  if (!state_.late.empty() && room()) begin_late(now);
}

/// Begins a request that will not be answered in time, where begins_anyway holds.
void Scheduler::begin_late(double now) {
  if (!begins_anyway(now)) return;
  const auto chosen = state_.late.begin() + static_cast<int64_t>(time_.late_to_begin(state_));
  Room left = admission_.room(state_);
  const std::shared_ptr<RequestState> request = *chosen;
  if (!begin_request(request, left)) return;
  request->anyway = true;
  state_.late.erase(chosen);
}

void Scheduler::commit(const Plan& plan, const std::vector<Outcome>& outcomes, double now) {
  schedule::commit(state_, plan, outcomes, now);
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
  state_.waiting.insert(state_.waiting.end(), state_.late.begin(), state_.late.end());
  state_.late.clear();
  out_of_time_ = false;
  return true;
}

void Scheduler::forget_assumed_end_once_over(double now) {
  if (time_.left_s(now) <= 0) forget_assumed_end();
}

std::optional<double> Scheduler::expected_seconds(const Plan& plan) const {
  return state_.times.expected_seconds(plan);
}

std::vector<Finished> Scheduler::take_finished() {
  return std::exchange(state_.finished, {});
}

std::vector<Finished> Scheduler::partial() const {
  std::vector<Finished> partial;
  for (const ActiveSequence& sequence : state_.active)
    if (sequence.begun && !sequence.result.tokens.empty() && !settled(sequence.current()))
      partial.push_back({sequence.current().row, io::TurnState::partial, sequence.result});
  return partial;
}

}  // namespace pecia::schedule
