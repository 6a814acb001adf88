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
      time_(state_.limits),
      unheard_(state_.limits.ring_size),
      busy_until_(state_.limits.ring_size, 0) {
  state_.limits.verify();
}

Scheduler::~Scheduler() = default;

/// Refuses turns that would not fit even if they had all slots to themselves.
void Scheduler::refuse_too_large(Request& request) {
  const auto why = [&](int64_t needed) {
    return fmt::format(
        "needs {} KV slots {}, there are {}: raise kv.memory or use more ranks (cp), then "
        "--retry-failed; a narrower kv.dtype needs another output folder",
        needed, state_.limits.elastic ? "on all ranks together" : "on each rank",
        state_.limits.most_slots());
  };
  const bool fork = request.followup == io::Followup::fork;
  for (size_t i = 0; i < request.turns.size(); ++i) {
    const bool whole = !fork || i == 0;
    if (!whole && (!begins_branch(request, i) || branch_settled(request, i))) continue;
    const int64_t needed = state_.needs.alone(request, i);
    if (needed <= state_.limits.most_slots()) continue;
    const std::string text = why(needed);
    const size_t end = whole ? request.turns.size() : end_of_branch(request, i);
    for (size_t turn = i; turn < end; ++turn)
      if (!settled(request.turns[turn])) state_.refuse(request.turns[turn], text);
  }
}

bool Scheduler::fits(const Request& request) const {
  for (size_t turn = 0; turn < request.turns.size(); ++turn)
    if (state_.needs.alone(request, turn) > state_.limits.most_slots()) return false;
  return true;
}

void Scheduler::add(Request request, double since) {
  PECIA_CHECK(!request.turns.empty(), "a request without turns");
  for (size_t i = 0; i < request.turns.size(); ++i) {
    const Turn& turn = request.turns[i];
    PECIA_CHECK(settled(turn) || !turn.tokens.empty(), "turn {} has no tokens", i);
    if (!turn.refused.empty()) state_.refuse_from(request, i, std::string(turn.refused));
  }
  refuse_too_large(request);
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
  auto family = std::make_shared<RequestState>();
  family->ready_s = request.arrival_s.value_or(since);
  family->request = std::move(request);
  family->longest = longest_of(family->request);
  if (!waits_least()) return state_.waiting.push_back(std::move(family));
  family->patience_s = due_s(0, state_.times.teams->prefill_s(1, 0, first_tokens(family->request),
                                                              state_.limits.max_batch_tokens));
  const auto later = [&](double due_s, const auto& other) { return due_s < other->due_s(); };
  state_.waiting.insert(
      std::upper_bound(state_.waiting.begin(), state_.waiting.end(), family->due_s(), later),
      family);
}

bool Scheduler::wants_more() const {
  return state_.waiting.empty() || has_room(1, 1);
}

bool Scheduler::has_room_for(const Request& request) const {
  if (state_.active.empty() && state_.waiting.empty() && state_.forks.empty()) return true;
  const int64_t needed = state_.needs.of_request(request);
  return needed > state_.limits.most_slots() || has_room(needed, first_tokens(request));
}

/// Whether the next pass could begin all waiting requests and one more that needs `slots` for
/// `tokens` prompt tokens; or, where requests are to wait least, whether there are slots for all.
bool Scheduler::has_room(int64_t slots, int64_t tokens) const {
  if (running() + waiting() >= state_.limits.max_sequences) return false;
  if (waits_least()) {
    int64_t free = sum_of(state_.free_slots());
    for (const auto& family : state_.waiting) free -= state_.needs.of_request(family->request);
    return slots <= free;
  }
  Room left = room();
  int64_t before = 0;
  for (const auto& family : state_.waiting) {
    before += first_tokens(family->request);
    if (!begin_in(left, *family)) return false;
  }
  if (!state_.limits.elastic && before >= state_.limits.max_batch_tokens) return false;
  return begin_in(left, slots, tokens, 0).has_value();
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
