// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/remaining_work.hpp"

#include <algorithm>

namespace pecia::schedule {
namespace {

PassWork reading(const SchedulerState& state, int64_t cached, int64_t read) {
  return work_of(static_cast<double>(cached), static_cast<double>(read),
                 static_cast<double>(state.limits.batch_tokens()));
}

/// Work of a turn that has not begun, with what has to be read again before it.
RemainingWork remaining_of_turn(const SchedulerState& state, const batch::Request& request,
                                size_t turn) {
  const bool branch = is_fork(request) && turn > 0;
  int64_t read = branch ? first_tokens(request) : 0;
  size_t first = branch ? turn : 0;
  while (branch && !begins_branch(request, first)) --first;
  for (size_t i = first; i <= turn; ++i)
    read += std::ssize(request.turns[i].tokens) + std::ssize(request.turns[i].answer.tokens);
  // What an earlier start has kept is taken to be read in no time.
  const int64_t kept = branch ? 0 : std::min(request.saved.tokens, read - 1);
  return remaining_of(state, request.turns[turn], kept, read - kept);
}

}  // namespace

RemainingWork& RemainingWork::operator+=(const RemainingWork& more) {
  prompts += more.prompts;
  answers.insert(answers.end(), more.answers.begin(), more.answers.end());
  return *this;
}

double seconds_of(RemainingWork work, const PassTimes& times) {
  double seconds = times.prefill.seconds(work.prompts);
  std::ranges::sort(work.answers, {}, &RemainingWork::Answer::tokens);
  double context = 0, answered = 0;
  for (const RemainingWork::Answer& answer : work.answers) context += answer.context;
  auto rows = static_cast<double>(work.answers.size());
  for (const RemainingWork::Answer& answer : work.answers) {
    const double steps = answer.tokens - answered;
    const double keys = context + rows * (answered + 0.5 * steps);
    seconds += times.decode.seconds({steps, steps * rows, steps * keys});
    answered = answer.tokens;
    context -= answer.context, rows -= 1;
  }
  return seconds;
}

RemainingWork remaining_of(const SchedulerState& state, const batch::Turn& turn, int64_t cached,
                           int64_t read) {
  RemainingWork work{reading(state, cached, read), {}};
  const int64_t given = std::ssize(turn.answer.tokens);
  if (turn.max_new_tokens > given)
    work.answers.push_back(
        {state.lengths.expected(turn, given), static_cast<double>(cached + read)});
  return work;
}

RemainingWork remaining_of(const SchedulerState& state, const batch::Request& request) {
  for (size_t turn = 0; turn < request.turns.size(); ++turn)
    if (!settled(request.turns[turn]) &&
        (turn > 0 || !is_fork(request) || request.turns[turn].max_new_tokens > 0))
      return remaining_of_turn(state, request, turn);
  return remaining_of_turn(state, request, 0);  // the request is a prompt that is only read
}

RemainingWork remaining_of(const SchedulerState& state, const ActiveSequence& sequence) {
  RemainingWork work;
  const int64_t again = sequence.again ? sequence.again->left() : 0;
  const int64_t unread = again + std::ssize(sequence.feed) - sequence.fed;
  const bool counts_pass = sequence.feeding() && (sequence.again || !state.limits.overlaps());
  const int64_t left = unread - (counts_pass ? sequence.in_pass : 0);
  const int64_t cached = state.length(sequence);
  if (left > 0) work.prompts = reading(state, cached, left);
  if (sequence.samples)
    work.answers.push_back(
        {state.lengths.expected(sequence.current(), std::ssize(sequence.result.tokens)),
         static_cast<double>(cached + left)});
  return work;
}

RemainingWork remaining_of_active(const SchedulerState& state) {
  RemainingWork all;
  for (const ActiveSequence& sequence : state.parked)
    if (sequence.begun) all += remaining_of(state, sequence);
  for (const ActiveSequence& sequence : state.active) {
    if (sequence.begun) {
      all += remaining_of(state, sequence);
      if (sequence.feeding())  // and the pass in which it is, which began not long ago
        all.prompts +=
            reading(state, state.map.length(sequence.id) - sequence.in_pass, sequence.in_pass);
    } else if (sequence.again) {
      all.prompts += reading(state, state.length(sequence), sequence.again->left());
    } else if (sequence.timed) {
      all += sequence.is_branch() ? remaining_of_turn(state, sequence.request(), sequence.turn)
                                  : remaining_of(state, sequence.request());
    }
  }
  return all;
}

}  // namespace pecia::schedule
