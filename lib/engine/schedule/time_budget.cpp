// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/time_budget.hpp"

#include <algorithm>
#include <limits>

namespace pecia::schedule {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

}  // namespace

TimeBudget::TimeBudget(const SchedulerLimits& limits)
    : end_s_(limits.time ? limits.time->end_s : never),
      keeps_kv_(limits.time && limits.time->keeps_kv),
      assumed_(limits.time && limits.time->assumed),
      side_by_side_(limits.elastic ? limits.ring_size : 1) {}

bool TimeBudget::forget_assumed_end() {
  if (!limited() || !assumed_) return false;
  end_s_ = never;
  return true;
}

double TimeBudget::seconds_alone(const SchedulerState& state, int64_t prompt_tokens,
                                 int64_t answer_tokens) const {
  batch::Turn turn;
  turn.max_new_tokens = static_cast<int32_t>(answer_tokens);
  return seconds_of(remaining_of(state, turn, 0, prompt_tokens), *state.times.passes);
}

bool TimeBudget::in_time_alone(const SchedulerState& state, const batch::Request& request,
                               double now) const {
  return !limited() || seconds_of(remaining_of(state, request), *state.times.passes) <= left_s(now);
}

double TimeBudget::seconds_of_active(const SchedulerState& state, const RemainingWork& more) const {
  RemainingWork all = remaining_of_active(state);
  all += more;
  return seconds_of(std::move(all), *state.times.passes) / side_by_side_;
}

bool TimeBudget::in_time(const SchedulerState& state, const RemainingWork& more, double now) const {
  return !limited() || seconds_of_active(state, more) <= left_s(now);
}

bool TimeBudget::in_time(const SchedulerState& state, const batch::Request& request,
                         double now) const {
  return !limited() || in_time(state, remaining_of(state, request), now);
}

bool TimeBudget::turn_in_time(const SchedulerState& state, const ActiveSequence& sequence,
                              double now) const {
  if (all_begin() || sequence.timed || sequence.is_prefix || sequence.turn == sequence.end ||
      settled(sequence.current()))
    return true;
  const batch::Turn& turn = sequence.current();
  const int64_t read =
      std::ssize(sequence.unfed) + std::ssize(turn.tokens) + std::ssize(turn.answer.tokens);
  return in_time(state, remaining_of(state, turn, state.map.length(sequence.id), read), now);
}

bool TimeBudget::branch_in_time(const SchedulerState& state, const RequestState& fork,
                                double now) const {
  if (all_begin() || fork.anyway) return true;
  const batch::Turn& turn = fork.request.turns[fork.next_branch];
  const int64_t read =
      std::ssize(turn.answer.tokens) + (fork.next_branch > 0 ? std::ssize(turn.tokens) : 0);
  return in_time(state, remaining_of(state, turn, first_tokens(fork.request), read), now);
}

bool TimeBudget::begins_anyway(const SchedulerState& state, double now) const {
  return limited() && left_s(now) > 0 && state.active.empty() && state.forks.empty() &&
         state.waiting.empty() && (keeps_kv_ || !state.any_done);
}

size_t TimeBudget::late_to_begin(const SchedulerState& state) const {
  if (keeps_kv_) return 0;
  const auto seconds = [&](const auto& late) {
    return seconds_of(remaining_of(state, late->request), *state.times.passes);
  };
  return std::ranges::min_element(state.late, {}, seconds) - state.late.begin();
}

std::optional<int64_t> TimeBudget::too_slow(const SchedulerState& state, double now) const {
  constexpr double far_too_slow = 1.25;
  if (!limited() || keeps_kv_) return {};
  const double seconds = seconds_of_active(state, {});
  const auto last = [&](bool read) -> std::optional<int64_t> {
    for (auto at = state.active.rbegin(); at != state.active.rend(); ++at)
      if (at->begun && at->feeding() && (at->fed > 0) == read && at->in_pass == 0 && !at->again &&
          !at->is_branch() && !at->origin->anyway && !at->origin->progressed)
        return at->id;
    return {};
  };
  if (seconds > left_s(now))
    if (const auto unread = last(false)) return unread;
  // Where the end is only assumed, it may have its time yet.
  if (!assumed_ && seconds > far_too_slow * left_s(now)) return last(true);
  return {};
}

PassBudget TimeBudget::of_pass(const SchedulerState& state, double now) const {
  if (!limited()) return {};
  PassWork step{1, 0, 0};
  for (const ActiveSequence& sequence : state.active) {
    if (!sequence.can_decode()) continue;
    step.rows += 1;
    step.pairs += static_cast<double>(state.map.length(sequence.id) + 1);
  }
  PassBudget budget{.left_s = left_s(now), .times = &*state.times.passes};
  const RateFit& decode = budget.times->decode;
  // The first prompt is followed by answers, to measure early how long a decode pass takes.
  budget.answers_first = !decode.measured() || !in_time(state, RemainingWork{}, now);
  budget.decodes = step.rows == 0 ||
                   (decode.measured() ? decode.seconds(step) <= budget.left_s : budget.left_s > 0);
  return budget;
}

}  // namespace pecia::schedule
