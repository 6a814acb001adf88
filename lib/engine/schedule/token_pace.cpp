// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/token_pace.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/engine/schedule/elastic_degree.hpp"
#include "lib/engine/schedule/pass_budget.hpp"

namespace pecia::schedule {
namespace {

constexpr int64_t least_rows = 64;  // of an instance

bool is_on(const ActiveSequence& sequence, const parallel::Team& team) {
  return sequence.instances.empty() ||
         std::ranges::any_of(sequence.instances,
                             [&](int32_t instance) { return team.index_of(instance).has_value(); });
}

/// Whether a pass with prompts keeps the answer from having its next token now.
bool is_held_up(const SchedulerState& state, const ActiveSequence& sequence) {
  return sequence.has_waited && std::ranges::any_of(sequence.instances, [&](int32_t instance) {
           return state.doing[instance] == Doing::prompts;
         });
}

}  // namespace

std::set<int32_t> instances_of_waiting(const SchedulerState& state) {
  std::set<int32_t> instances;
  if (!state.limits.tbt_s) return instances;
  for (const ActiveSequence& sequence : state.active) {
    if (!sequence.has_waited || !sequence.has_room() || is_held_up(state, sequence)) continue;
    instances.insert(sequence.instances.begin(), sequence.instances.end());
    if (sequence.instances.empty()) instances.insert(0);
  }
  return instances;
}

void let_waiting_first(const SchedulerState& state, Selection& prompts) {
  const std::set<int32_t> waiting = instances_of_waiting(state);
  std::erase_if(prompts, [&](const ActiveSequence* prompt) {
    return std::ranges::any_of(prompt->needed(),
                               [&](int32_t instance) { return waiting.contains(instance); });
  });
}

void let_wait(SchedulerState& state, const parallel::Team& team) {
  if (!state.limits.tbt_s) return;
  for (ActiveSequence& sequence : state.active)
    if (sequence.can_decode() && is_on(sequence, team)) sequence.has_waited = true;
}

TokenPace::TokenPace(const SchedulerState& state, const Plan& plan, double now,
                     const std::vector<double>& busy_until)
    : times_(*state.times.teams),
      elastic_(state.limits.elastic),
      left_s_(std::numeric_limits<double>::infinity()) {
  const parallel::Team& team = plan.teams.front();
  degree_ = team.size(), workers_ = team.workers();
  if (!plan.items.empty())
    riders_s_ = times_.seconds(degree_, PassKind::decode, busiest_work(plan).second);
  std::set<int32_t> answering;
  for (const ActiveSequence& sequence : state.active) {
    if (!sequence.begun || sequence.feeding() || !is_on(sequence, team)) continue;
    if (is_held_up(state, sequence)) {
      in_time_ = true;
      double until_s = now;
      for (const int32_t instance : sequence.instances)
        until_s = std::max(until_s, busy_until[instance]);
      left_s_ = std::min(left_s_, until_s - now);
      continue;
    }
    left_s_ = std::min(left_s_, sequence.token_s.value_or(now) + *state.limits.tbt_s - now);
    if (sequence.in_pass > 0) continue;
    ++waiting_;
    context_ += state.map.length(sequence.id) + 1;
    answering.insert(sequence.instances.begin(), sequence.instances.end());
  }
  answering_ = elastic_ ? std::max(1, static_cast<int>(answering.size())) : degree_;
}

/// The pass of tokens after this one.
double TokenPace::seconds_after(bool one_more) const {
  if (waiting_ == 0) return 0;
  const int64_t rows = waiting_ + ended_ + (one_more ? 1 : 0);
  return elastic_ ? masters(times_, answering_, rows, context_).seconds
                  : times_.decode_s(answering_, answering_, rows, context_);
}

/// Rows whose time is that of a pass with next to none: it is late in any case.
int64_t TokenPace::least_of_late_pass(int64_t first, int64_t count) const {
  const double none_s = times_.seconds(degree_, PassKind::prefill, with(first, 0));
  const auto twice = [&](int64_t rows) {
    return times_.seconds(degree_, PassKind::prefill, with(first, rows)) <= 2 * none_s;
  };
  int64_t most = least_rows * workers_;
  while (most < count && twice(2 * most)) most *= 2;
  return most;
}

PassWork TokenPace::with(int64_t first, int64_t count) const {
  const auto before = static_cast<double>(first), rows = static_cast<double>(count);
  PassWork work = work_of(before, rows, rows).shared(workers_);
  work.rows = std::ceil(work.rows);
  work.cached = before;
  work += prompts_;
  work.passes = 1;
  return work;
}

int64_t TokenPace::rows(int64_t first, int64_t count, int64_t unit, bool ends) const {
  if (count == 0 || std::isinf(left_s_)) return count;
  const int64_t most = most_that_fits(count, unit, [&](int64_t rows) {
    return times_.seconds(degree_, PassKind::prefill, with(first, rows)) + riders_s_ +
               seconds_after(ends && rows == count) <=
           left_s_;
  });
  if (most >= worth_a_pass(least_rows * workers_, count, unit)) return most;
  return prompts_.rows == 0 && !in_time_
             ? worth_a_pass(least_of_late_pass(first, count), count, unit)
             : 0;
}

void TokenPace::add(int64_t first, int64_t count, bool ends) {
  prompts_ = with(first, count);
  if (!ends) return;
  ++ended_;
  context_ += first + count;
}

}  // namespace pecia::schedule
