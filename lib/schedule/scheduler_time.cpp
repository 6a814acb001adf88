// SPDX-License-Identifier: Apache-2.0
/// What the remaining time allows: which turns begin, and how long passes may be.

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lib/schedule/scheduler_parts.hpp"

namespace pecia::schedule {

bool Scheduler::limited() const {
  return std::isfinite(end_s_);
}

bool Scheduler::forget_assumed_end() {
  if (!limited() || !state_.limits.time->assumed) return false;
  end_s_ = std::numeric_limits<double>::infinity();
  state_.waiting.insert(state_.waiting.end(), state_.late.begin(), state_.late.end());
  state_.late.clear();
  out_of_time_ = false;
  return true;
}

void Scheduler::forget_assumed_end_once_over(double now) {
  if (left_s(now) <= 0) forget_assumed_end();
}

/// Seconds until passes have to be over; negative after that.
double Scheduler::left_s(double now) const {
  return limited() ? end_s_ - now : std::numeric_limits<double>::infinity();
}

std::optional<double> Scheduler::expected_seconds(const Plan& plan) const {
  return state_.times.expected_seconds(plan);
}

/// Work ahead of a turn that has not begun, including what has to be read again before it.
Scheduler::Ahead Scheduler::ahead_of_turn(const Request& request, size_t turn) const {
  int64_t before = 0;
  const bool branch = request.followup == io::Followup::fork && turn > 0;
  if (branch) before = first_tokens(request);
  size_t first = branch ? turn : 0;
  while (branch && !begins_branch(request, first)) --first;
  for (size_t i = first; i < turn; ++i)
    before += static_cast<int64_t>(request.turns[i].tokens.size() +
                                   request.turns[i].answer.tokens.size());
  const Turn& own = request.turns[turn];
  const auto given = static_cast<int64_t>(own.answer.tokens.size());
  const int64_t read = before + static_cast<int64_t>(own.tokens.size()) + given;
  // What an earlier start has kept is taken to be read in no time.
  const int64_t kept = branch ? 0 : std::min(request.saved.tokens, read - 1);
  Ahead ahead;
  ahead.prompts = work_of(static_cast<double>(kept), static_cast<double>(read - kept),
                          static_cast<double>(state_.limits.batch_tokens()));
  if (own.max_new_tokens > given)
    ahead.answers.push_back({state_.lengths.expected(own, given), static_cast<double>(read)});
  return ahead;
}

/// Work ahead of a request's first open turn.
Scheduler::Ahead Scheduler::ahead_of(const Request& request) const {
  for (size_t turn = 0; turn < request.turns.size(); ++turn)
    if (!settled(request.turns[turn]) && (turn > 0 || request.followup == io::Followup::chain ||
                                          request.turns[turn].max_new_tokens > 0))
      return ahead_of_turn(request, turn);
  return ahead_of_turn(request, 0);  // the request is a prompt that is only read
}

/// Work ahead of all turns under way, including those that the pass being planned begins.
Scheduler::Ahead Scheduler::ahead_of_running() const {
  Ahead all;
  for (const ActiveSequence& running : state_.active) {
    const Request& request = running.origin->request;
    if (running.begun) {
      all += ahead_of(running);
      if (running.feeding())  // and the pass in which it is, which began not long ago
        all.prompts += work_of(static_cast<double>(state_.map.length(running.id) - running.in_pass),
                               static_cast<double>(running.in_pass),
                               static_cast<double>(state_.limits.batch_tokens()));
    } else if (running.timed) {
      all += running.is_branch() ? ahead_of_turn(request, running.turn) : ahead_of(request);
    }
  }
  return all;
}

/// Work ahead of a turn that has begun, after the pass in which it is.
Scheduler::Ahead Scheduler::ahead_of(const ActiveSequence& running) const {
  Ahead ahead;
  const int64_t in_pass = running.feeding() ? running.in_pass : 0;
  const int64_t left = std::ssize(running.feed) - running.fed - in_pass;
  const auto cached = static_cast<double>(state_.map.length(running.id));
  if (left > 0)
    ahead.prompts = work_of(cached, static_cast<double>(left),
                            static_cast<double>(state_.limits.batch_tokens()));
  if (running.samples)
    ahead.answers.push_back(
        {state_.lengths.expected(running.current(),
                                 static_cast<int64_t>(running.result.tokens.size())),
         cached + static_cast<double>(left)});
  return ahead;
}

/// Expected seconds in the order of prefill_first: prompts first, then the answers together, until
/// the longest has ended.
double Scheduler::seconds_of(Ahead ahead) const {
  return seconds_of(std::move(ahead), (*state_.times.passes));
}

double Scheduler::seconds_of(Ahead ahead, const PassTimes& times) {
  double seconds = times.prefill.seconds(ahead.prompts);
  std::sort(ahead.answers.begin(), ahead.answers.end(),
            [](const Ahead::Answer& a, const Ahead::Answer& b) { return a.tokens < b.tokens; });
  double context = 0, answered = 0;
  for (const Ahead::Answer& answer : ahead.answers) context += answer.context;
  auto rows = static_cast<double>(ahead.answers.size());
  for (const Ahead::Answer& answer : ahead.answers) {
    const double steps = answer.tokens - answered;
    const double keys = context + rows * (answered + 0.5 * steps);
    seconds += times.decode.seconds({steps, steps * rows, steps * keys});
    answered = answer.tokens;
    context -= answer.context, rows -= 1;
  }
  return seconds;
}

/// Whether `more` can be done in time in addition to all work under way.
bool Scheduler::in_time(const Ahead& more, double now) const {
  if (!limited()) return true;
  Ahead all = ahead_of_running();
  all += more;
  return seconds_of(std::move(all)) / side_by_side() <= left_s(now);
}

/// How many passes run side by side; `times` are of one instance then.
double Scheduler::side_by_side() const {
  return state_.limits.elastic ? state_.limits.ring_size : 1;
}

double Scheduler::seconds_alone(int64_t prompt_tokens, int64_t answer_tokens) const {
  Ahead ahead;
  ahead.prompts = work_of(0, static_cast<double>(prompt_tokens),
                          static_cast<double>(state_.limits.batch_tokens()));
  Turn turn;
  turn.max_new_tokens = static_cast<int32_t>(answer_tokens);
  ahead.answers.push_back({state_.lengths.expected(turn, 0), static_cast<double>(prompt_tokens)});
  return seconds_of(std::move(ahead));
}

bool Scheduler::could_finish(int64_t prompt_tokens, int64_t answer_tokens, double now) const {
  return !limited() || seconds_alone(prompt_tokens, answer_tokens) <= left_s(now);
}

/// Whether a later turn of a chain or branch, whose earlier turns are cached, can be done in time.
bool Scheduler::turn_in_time(const ActiveSequence& running, double now) {
  if (!limited() || running.timed || state_.limits.time->keeps_kv || state_.limits.time->assumed)
    return true;
  const auto& turns = running.origin->request.turns;
  if (running.is_prefix || running.turn == running.end || settled(turns[running.turn])) return true;
  const Turn& turn = turns[running.turn];
  const auto given = static_cast<int64_t>(turn.answer.tokens.size());
  const auto cached = static_cast<double>(state_.map.length(running.id));
  const auto read =
      static_cast<double>(running.unfed.size() + turn.tokens.size() + turn.answer.tokens.size());
  Ahead ahead;
  ahead.prompts = work_of(cached, read, static_cast<double>(state_.limits.batch_tokens()));
  if (turn.max_new_tokens > given)
    ahead.answers.push_back({state_.lengths.expected(turn, given), cached + read});
  if (in_time(ahead, now)) return true;
  given_up_ = true;
  return false;
}

bool Scheduler::branch_in_time(const RequestState& family, double now) const {
  if (!limited() || state_.limits.time->keeps_kv || state_.limits.time->assumed || family.anyway)
    return true;
  const auto& turns = family.request.turns;
  const Turn& turn = turns[family.next_branch];
  const auto given = static_cast<int64_t>(turn.answer.tokens.size());
  const auto stem = static_cast<double>(turns.front().tokens.size());
  const double read = static_cast<double>(given) +
                      (family.next_branch > 0 ? static_cast<double>(turn.tokens.size()) : 0.0);
  Ahead ahead;
  ahead.prompts = work_of(stem, read, static_cast<double>(state_.limits.batch_tokens()));
  if (turn.max_new_tokens > given)
    ahead.answers.push_back({state_.lengths.expected(turn, given), stem + read});
  return in_time(ahead, now);
}

bool Scheduler::begins_anyway(double now) const {
  return limited() && !out_of_time_ && left_s(now) > 0 && state_.active.empty() &&
         state_.forks.empty() && state_.waiting.empty() &&
         (state_.limits.time->keeps_kv || !state_.any_done);
}

/// Begins a request that will not be answered in time, where begins_anyway holds. It is the first
/// in order where what is read of it is kept, else the one nearest to an answer.
bool Scheduler::begin_late(double now) {
  if (!begins_anyway(now)) return false;
  auto chosen = state_.late.begin();
  if (!state_.limits.time->keeps_kv)
    chosen =
        std::min_element(state_.late.begin(), state_.late.end(), [&](const auto& a, const auto& b) {
          return seconds_of(ahead_of(a->request)) < seconds_of(ahead_of(b->request));
        });
  const std::shared_ptr<RequestState> family = *chosen;
  Room left = room();
  if (!admit_request(family, left)) return false;
  family->anyway = true;
  state_.late.erase(chosen);
  return true;
}

/// Takes back the places of prompts that turn out too slow to be answered in time, beginning with
/// the last. A prompt of which nothing has been read goes at once. Another goes only when it is far
/// too slow, since what has been read of it is lost.
void Scheduler::give_back_late(double now) {
  constexpr double far_too_slow = 1.25;
  const auto give_back = [&](double factor, bool read) {
    const auto may_go = [read](const ActiveSequence& running) {
      return running.begun && running.feeding() && (running.fed > 0) == read &&
             running.in_pass == 0 && !running.is_branch() && !running.origin->anyway &&
             !running.origin->progressed;
    };
    while (seconds_of(ahead_of_running()) / side_by_side() > factor * left_s(now)) {
      const auto last = std::find_if(state_.active.rbegin(), state_.active.rend(), may_go);
      if (last == state_.active.rend()) return;
      state_.give_back(std::prev(last.base()));
    }
  };
  give_back(1, false);
  if (!state_.limits.time->assumed) give_back(far_too_slow, true);  // it may have its time yet
}

/// Returns late requests to the queue when the passes measured since show that they fit after all.
void Scheduler::reconsider_late(double now) {
  for (auto family = state_.late.begin(); family != state_.late.end();)
    if (seconds_of(ahead_of((*family)->request)) <= left_s(now)) {
      state_.waiting.push_back(*family);
      family = state_.late.erase(family);
    } else {
      ++family;
    }
}

/// New tokens of a prompt that the pass has time for, at most `count`, in whole units; 0: too few
/// to be worth a pass. The first pass of a start may be cut but not to 0, since only that pass can
/// show whether the estimate holds.
int64_t Scheduler::rows_in_time(const Plan& plan, int64_t first, int64_t count, double now) const {
  constexpr int64_t least = 64;
  const PassTimes& times = (*state_.times.passes);
  const auto [prompts, answers] = work_of(plan);
  const double left = left_s(now) - (answers.rows > 0 ? times.decode.seconds(answers) : 0);
  const auto fits = [&](int64_t rows) {
    PassWork work =
        work_of(static_cast<double>(first), static_cast<double>(rows), static_cast<double>(rows));
    work += prompts;
    work.passes = 1;
    return times.prefill.seconds(work) <= left;
  };
  if (fits(count)) return count;
  // Where results must be the same in any batch, a prompt is always cut at the same tokens.
  const int64_t unit = state_.limits.layout_invariant ? count : state_.limits.chunk_unit();
  int64_t some = 0, too_many = count / unit + 1;
  while (too_many - some > 1) {
    const int64_t middle = (some + too_many) / 2;
    (fits(middle * unit) ? some : too_many) = middle;
  }
  const int64_t worth = std::min(count, (least + unit - 1) / unit * unit);
  if (some * unit >= worth) return some * unit;
  const bool untried = !times.prefill.measured() && plan.items.empty() && left > 0;
  return untried ? worth : 0;
}

/// Whether answers come before prompts. They do when time is too short for all work under way. They
/// also do after the first prompt, to measure early how long a decode pass takes.
bool Scheduler::answers_come_first(double now) const {
  return limited() && (!(*state_.times.passes).decode.measured() || !in_time({}, now));
}

/// Whether a pass with one token of each decoding sequence ends in time.
bool Scheduler::decode_in_time(double now) const {
  if (!limited()) return true;
  PassWork work{1, 0, 0};
  for (const ActiveSequence& running : state_.active) {
    if (!running.begun || running.in_pass > 0 || running.feeding()) continue;
    work.rows += 1;
    work.pairs += static_cast<double>(state_.map.length(running.id) + 1);
  }
  const RateFit& decode = (*state_.times.passes).decode;
  return work.rows == 0 ||
         (decode.measured() ? decode.seconds(work) <= left_s(now) : left_s(now) > 0);
}

}  // namespace pecia::schedule
