// SPDX-License-Identifier: Apache-2.0
/// What the remaining time allows: which turns begin, and how long passes may be.

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lib/schedule/scheduler_state.hpp"

namespace pecia::schedule {

bool Scheduler::limited() const {
  return limits_.time && std::isfinite(limits_.time->end_s);
}

bool Scheduler::forget_assumed_end() {
  if (!limited() || !limits_.time->assumed) return false;
  limits_.time->end_s = std::numeric_limits<double>::infinity();
  waiting_.insert(waiting_.end(), late_.begin(), late_.end());
  late_.clear();
  out_of_time_ = false;
  return true;
}

void Scheduler::forget_assumed_end_once_over(double now) {
  if (left_s(now) <= 0) forget_assumed_end();
}

/// Seconds until passes have to be over; negative after that.
double Scheduler::left_s(double now) const {
  return limited() ? limits_.time->end_s - now : std::numeric_limits<double>::infinity();
}

std::optional<double> Scheduler::expected_seconds(const Plan& plan) const {
  const auto [prompts, answers] = work_of(plan);
  if (limits_.team_times) {
    const int degree = plan.teams.front().size();
    const TeamTimes& times = *limits_.team_times;
    const bool known = (prompts.rows == 0 || times.measured(degree, PassKind::prefill)) &&
                       (answers.rows == 0 || times.measured(degree, PassKind::decode));
    return known ? std::optional(schedule::expected_seconds(plan, times)) : std::nullopt;
  }
  if (!limits_.time) return {};
  const PassTimes& times = limits_.time->times;
  if ((prompts.rows > 0 && !times.prefill.measured()) ||
      (answers.rows > 0 && !times.decode.measured()))
    return {};
  return times.prefill.seconds(prompts) + times.decode.seconds(answers);
}

/// Output tokens that the turn is expected still to need after the `given` ones. This is the most
/// that it may have until a few answers have ended; then their mean share of that, plus a quarter.
double Scheduler::expected_answer(const Turn& turn, int64_t given) const {
  constexpr int64_t telling_turns = 4;
  constexpr double margin = 1.25;
  const auto most = static_cast<double>(turn.max_new_tokens - given);
  if (most <= 0) return 0;
  if (answered_turns_ < telling_turns) return most;
  const double share =
      margin * static_cast<double>(answered_tokens_) / static_cast<double>(allowed_tokens_);
  return std::clamp(share * turn.max_new_tokens - static_cast<double>(given), 1.0, most);
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
                          static_cast<double>(limits_.batch_tokens()));
  if (own.max_new_tokens > given)
    ahead.answers.push_back({expected_answer(own, given), static_cast<double>(read)});
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
  for (const Running& running : running_) {
    const Request& request = running.family->request;
    if (running.begun) {
      all += ahead_of(running);
      if (running.feeding())  // and the pass in which it is, which began not long ago
        all.prompts += work_of(static_cast<double>(map_.length(running.sequence) - running.in_pass),
                               static_cast<double>(running.in_pass),
                               static_cast<double>(limits_.batch_tokens()));
    } else if (running.timed) {
      all += running.is_branch() ? ahead_of_turn(request, running.turn) : ahead_of(request);
    }
  }
  return all;
}

/// Work ahead of a turn that has begun, after the pass in which it is.
Scheduler::Ahead Scheduler::ahead_of(const Running& running) const {
  Ahead ahead;
  const int64_t in_pass = running.feeding() ? running.in_pass : 0;
  const int64_t left = std::ssize(running.feed) - running.fed - in_pass;
  const auto cached = static_cast<double>(map_.length(running.sequence));
  if (left > 0)
    ahead.prompts =
        work_of(cached, static_cast<double>(left), static_cast<double>(limits_.batch_tokens()));
  if (running.samples)
    ahead.answers.push_back(
        {expected_answer(running.current(), static_cast<int64_t>(running.result.tokens.size())),
         cached + static_cast<double>(left)});
  return ahead;
}

/// Expected seconds in the order of prefill_first: prompts first, then the answers together, until
/// the longest has ended.
double Scheduler::seconds_of(Ahead ahead) const {
  return seconds_of(std::move(ahead), limits_.time->times);
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
  return limits_.elastic ? limits_.ring_size : 1;
}

double Scheduler::seconds_alone(int64_t prompt_tokens, int64_t answer_tokens) const {
  Ahead ahead;
  ahead.prompts =
      work_of(0, static_cast<double>(prompt_tokens), static_cast<double>(limits_.batch_tokens()));
  Turn turn;
  turn.max_new_tokens = static_cast<int32_t>(answer_tokens);
  ahead.answers.push_back({expected_answer(turn, 0), static_cast<double>(prompt_tokens)});
  return seconds_of(std::move(ahead));
}

bool Scheduler::could_finish(int64_t prompt_tokens, int64_t answer_tokens, double now) const {
  return !limited() || seconds_alone(prompt_tokens, answer_tokens) <= left_s(now);
}

/// Whether a later turn of a chain or branch, whose earlier turns are cached, can be done in time.
bool Scheduler::turn_in_time(const Running& running, double now) {
  if (!limited() || running.timed || limits_.time->keeps_kv || limits_.time->assumed) return true;
  const auto& turns = running.family->request.turns;
  if (running.is_stem || running.turn == running.end || settled(turns[running.turn])) return true;
  const Turn& turn = turns[running.turn];
  const auto given = static_cast<int64_t>(turn.answer.tokens.size());
  const auto cached = static_cast<double>(map_.length(running.sequence));
  const auto read =
      static_cast<double>(running.unfed.size() + turn.tokens.size() + turn.answer.tokens.size());
  Ahead ahead;
  ahead.prompts = work_of(cached, read, static_cast<double>(limits_.batch_tokens()));
  if (turn.max_new_tokens > given)
    ahead.answers.push_back({expected_answer(turn, given), cached + read});
  if (in_time(ahead, now)) return true;
  given_up_ = true;
  return false;
}

bool Scheduler::branch_in_time(const Family& family, double now) const {
  if (!limited() || limits_.time->keeps_kv || limits_.time->assumed || family.anyway) return true;
  const auto& turns = family.request.turns;
  const Turn& turn = turns[family.next_branch];
  const auto given = static_cast<int64_t>(turn.answer.tokens.size());
  const auto stem = static_cast<double>(turns.front().tokens.size());
  const double read = static_cast<double>(given) +
                      (family.next_branch > 0 ? static_cast<double>(turn.tokens.size()) : 0.0);
  Ahead ahead;
  ahead.prompts = work_of(stem, read, static_cast<double>(limits_.batch_tokens()));
  if (turn.max_new_tokens > given)
    ahead.answers.push_back({expected_answer(turn, given), stem + read});
  return in_time(ahead, now);
}

bool Scheduler::begins_anyway(double now) const {
  return limited() && !out_of_time_ && left_s(now) > 0 && running_.empty() && forks_.empty() &&
         waiting_.empty() && (limits_.time->keeps_kv || !any_done_);
}

/// Begins a request that will not be answered in time, where begins_anyway holds. It is the first
/// in order where what is read of it is kept, else the one nearest to an answer.
bool Scheduler::begin_late(Plan& plan, double now) {
  if (!begins_anyway(now)) return false;
  auto chosen = late_.begin();
  if (!limits_.time->keeps_kv)
    chosen = std::min_element(late_.begin(), late_.end(), [&](const auto& a, const auto& b) {
      return seconds_of(ahead_of(a->request)) < seconds_of(ahead_of(b->request));
    });
  const std::shared_ptr<Family> family = *chosen;
  Room left = room();
  if (!admit_request(plan, family, left)) return false;
  family->anyway = true;
  late_.erase(chosen);
  return true;
}

/// Takes back the places of prompts that turn out too slow to be answered in time, beginning with
/// the last. A prompt of which nothing has been read goes at once. Another goes only when it is far
/// too slow, since what has been read of it is lost.
void Scheduler::give_back_late(double now) {
  constexpr double far_too_slow = 1.25;
  const auto give_back = [&](double factor, bool read) {
    const auto may_go = [read](const Running& running) {
      return running.begun && running.feeding() && (running.fed > 0) == read &&
             running.in_pass == 0 && !running.is_branch() && !running.family->anyway &&
             !running.family->progressed;
    };
    while (seconds_of(ahead_of_running()) / side_by_side() > factor * left_s(now)) {
      const auto last = std::find_if(running_.rbegin(), running_.rend(), may_go);
      if (last == running_.rend()) return;
      const std::shared_ptr<Family> family = last->family;
      keep_back(*family, Slots(limits_.ring_size));
      family->credit = family->kept;
      map_.remove(last->sequence);
      forget(last->sequence);
      running_.erase(std::next(last).base());
      late_.push_back(family);
    }
  };
  give_back(1, false);
  if (!limits_.time->assumed) give_back(far_too_slow, true);  // it may have its time yet
}

/// Returns late requests to the queue when the passes measured since show that they fit after all.
void Scheduler::reconsider_late(double now) {
  for (auto family = late_.begin(); family != late_.end();)
    if (seconds_of(ahead_of((*family)->request)) <= left_s(now)) {
      waiting_.push_back(*family);
      family = late_.erase(family);
    } else {
      ++family;
    }
}

/// New tokens of a prompt that the pass has time for, at most `count`, in whole units; 0: too few
/// to be worth a pass. The first pass of a start may be cut but not to 0, since only that pass can
/// show whether the estimate holds.
int64_t Scheduler::rows_in_time(const Plan& plan, int64_t first, int64_t count, double now) const {
  constexpr int64_t least = 64;
  const PassTimes& times = limits_.time->times;
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
  const int64_t unit = limits_.layout_invariant ? count : limits_.chunk_unit();
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
  return limited() && (!limits_.time->times.decode.measured() || !in_time({}, now));
}

/// Whether a pass with one token of each decoding sequence ends in time.
bool Scheduler::decode_in_time(double now) const {
  if (!limited()) return true;
  PassWork work{1, 0, 0};
  for (const Running& running : running_) {
    if (!running.begun || running.in_pass > 0 || running.feeding()) continue;
    work.rows += 1;
    work.pairs += static_cast<double>(map_.length(running.sequence) + 1);
  }
  const RateFit& decode = limits_.time->times.decode;
  return work.rows == 0 ||
         (decode.measured() ? decode.seconds(work) <= left_s(now) : left_s(now) > 0);
}

}  // namespace pecia::schedule
