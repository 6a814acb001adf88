// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/known_times.hpp"

namespace pecia::schedule {

KnownTimes::KnownTimes(const SchedulerLimits& limits)
    : teams(limits.team_times), teams_change_(limits.elastic) {
  if (limits.time) passes = limits.time->times;
}

void KnownTimes::add(const Plan& plan, bool restored, double seconds) {
  if (passes && !restored) {
    const auto [prompts, answers] = work_of(plan);
    const double workers = teams_change_ ? plan.teams.front().workers() : 1;
    passes->add(prompts.shared(workers), answers.shared(workers), seconds);
  }
  if (!teams || restored) return;
  const auto [prompts, answers] = busiest_work(plan);
  if (moves_between(plan)) return;  // it has the keys of other passes to move, too
  const int degree = plan.teams.front().size();
  const double prompts_s = teams->seconds(degree, PassKind::prefill, prompts);
  const double answers_s = teams->seconds(degree, PassKind::decode, answers);
  const auto take = [&](PassKind kind, const PassWork& work, double expected_s) {
    if (work.rows > 0)
      teams->add(degree, kind, work, seconds * expected_s / (prompts_s + answers_s));
  };
  take(PassKind::prefill, prompts, prompts_s);
  take(PassKind::decode, answers, answers_s);
}

std::optional<double> KnownTimes::expected_seconds(const Plan& plan) const {
  const auto [prompts, answers] = work_of(plan);
  const auto known = [&](bool prefill, bool decode) {
    return (prompts.rows == 0 || prefill) && (answers.rows == 0 || decode);
  };
  if (teams) {
    const int degree = plan.teams.front().size();
    if (!known(teams->measured(degree, PassKind::prefill),
               teams->measured(degree, PassKind::decode)))
      return {};
    return schedule::expected_seconds(plan, *teams);
  }
  if (!passes || !known(passes->prefill.measured(), passes->decode.measured())) return {};
  return passes->prefill.seconds(prompts) + passes->decode.seconds(answers);
}

}  // namespace pecia::schedule
