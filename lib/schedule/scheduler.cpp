// SPDX-License-Identifier: Apache-2.0
#include "lib/schedule/scheduler.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "lib/parallel/virtual_ranks.hpp"
#include "lib/schedule/elastic_urgency.hpp"
#include "lib/schedule/scheduler_state.hpp"

namespace pecia::schedule {

Scheduler::Scheduler(SchedulerLimits limits)
    : limits_(std::move(limits)),
      map_(limits_.ring_size),
      credits_(limits_.ring_size),
      unheard_(limits_.ring_size),
      doing_(limits_.ring_size, Doing::nothing),
      busy_until_(limits_.ring_size, 0) {
  limits_.verify();
}

Scheduler::~Scheduler() = default;

void Scheduler::refuse(Turn& turn, const std::string& why) {
  if (turn.finished) return;
  turn.refused = why;
  if (std::exchange(turn.recorded, true) || turn.row == Turn::no_row) return;
  Finished failed{turn.row, io::TurnState::failed, {}};
  failed.result.finish_reason = io::FinishReason::failed;
  failed.result.error = why;
  failed.result.prompt_tokens = prompt_tokens(turn);
  failed.result.truncated_tokens = turn.truncated_tokens;
  finished_.push_back(std::move(failed));
}

/// Refuses the turn and all later turns that see it. A later turn keeps a reason of its own.
void Scheduler::refuse_from(Request& request, size_t first, const std::string& why) {
  const std::string after = "an earlier turn of this request failed: " + why;
  refuse(request.turns[first], why);
  const bool branch = request.followup == io::Followup::fork && first > 0;
  const size_t end = branch ? end_of_branch(request, first) : request.turns.size();
  for (size_t later = first + 1; later < end; ++later) {
    Turn& turn = request.turns[later];
    refuse(turn, turn.refused.empty() ? after : std::string(turn.refused));
  }
}

/// Refuses turns that would not fit even if they had all slots to themselves.
void Scheduler::refuse_too_large(Request& request) {
  const auto why = [&](int64_t needed) {
    return fmt::format(
        "needs {} KV slots {}, there are {}: raise kv.memory or use more ranks (cp), then "
        "--retry-failed; a narrower kv.dtype needs another output folder",
        needed, limits_.elastic ? "on all ranks together" : "on each rank", limits_.most_slots());
  };
  const bool fork = request.followup == io::Followup::fork;
  for (size_t i = 0; i < request.turns.size(); ++i) {
    const bool whole = !fork || i == 0;
    if (!whole && (!begins_branch(request, i) || branch_settled(request, i))) continue;
    const int64_t needed = slots_alone(request, i);
    if (needed <= limits_.most_slots()) continue;
    const std::string text = why(needed);
    const size_t end = whole ? request.turns.size() : end_of_branch(request, i);
    for (size_t turn = i; turn < end; ++turn)
      if (!settled(request.turns[turn])) refuse(request.turns[turn], text);
  }
}

bool Scheduler::fits(const Request& request) const {
  for (size_t turn = 0; turn < request.turns.size(); ++turn)
    if (slots_alone(request, turn) > limits_.most_slots()) return false;
  return true;
}

void Scheduler::add(Request request, double since) {
  PECIA_CHECK(!request.turns.empty(), "a request without turns");
  for (size_t i = 0; i < request.turns.size(); ++i) {
    const Turn& turn = request.turns[i];
    PECIA_CHECK(settled(turn) || !turn.tokens.empty(), "turn {} has no tokens", i);
    if (!turn.refused.empty()) refuse_from(request, i, std::string(turn.refused));
  }
  refuse_too_large(request);
  if (std::all_of(request.turns.begin(), request.turns.end(), settled)) return;
  if (limits_.prompt_logprobs != 0)
    for (Turn& turn : request.turns) {
      constexpr float no_prediction = std::numeric_limits<float>::quiet_NaN();
      const size_t width = top_width(limits_.prompt_logprobs, limits_.vocab);
      turn.answer.prompt_logprobs.assign(turn.tokens.size(), no_prediction);
      turn.answer.prompt_top_logprobs.assign(turn.tokens.size() * width, no_prediction);
      if (limits_.prompt_logprobs > 0)
        turn.answer.prompt_top_tokens.assign(turn.tokens.size() * width, -1);
    }
  auto family = std::make_shared<Family>();
  family->ready = request.arrival_s.value_or(since);
  family->request = std::move(request);
  family->longest = longest_of(family->request);
  if (!waits_least()) return waiting_.push_back(std::move(family));
  family->patience_s = due_s(0, limits_.team_times->prefill_s(1, 0, first_tokens(family->request),
                                                              limits_.max_batch_tokens));
  const auto later = [&](double due_s, const auto& other) { return due_s < due(*other); };
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), due(*family), later), family);
}

bool Scheduler::wants_more() const {
  return waiting_.empty() || has_room(1, 1);
}

bool Scheduler::has_room_for(const Request& request) const {
  if (running_.empty() && waiting_.empty() && forks_.empty()) return true;
  const int64_t needed = tokens_needed(request);
  return needed > limits_.most_slots() || has_room(needed, first_tokens(request));
}

/// Whether the next pass could begin all waiting requests and one more that needs `slots` for
/// `tokens` prompt tokens; or, where requests are to wait least, whether there are slots for all.
bool Scheduler::has_room(int64_t slots, int64_t tokens) const {
  if (running() + waiting() >= limits_.max_sequences) return false;
  if (waits_least()) {
    int64_t free = sum_of(free_slots());
    for (const auto& family : waiting_) free -= tokens_needed(family->request);
    return slots <= free;
  }
  Room left = room();
  int64_t before = 0;
  for (const auto& family : waiting_) {
    before += first_tokens(family->request);
    if (!begin_in(left, *family)) return false;
  }
  if (!limits_.elastic && before >= limits_.max_batch_tokens) return false;
  return begin_in(left, slots, tokens, 0).has_value();
}

std::vector<Finished> Scheduler::take_finished() {
  return std::exchange(finished_, {});
}

std::vector<Finished> Scheduler::partial() const {
  std::vector<Finished> partial;
  for (const Running& running : running_)
    if (running.begun && !running.result.tokens.empty() && !settled(running.current()))
      partial.push_back({running.current().row, io::TurnState::partial, running.result});
  return partial;
}

}  // namespace pecia::schedule
