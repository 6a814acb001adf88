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
  if (!teams_change_ || !teams) return;
  const auto [prompts, answers] = busiest_work(plan);
  // It tells nothing of either kind.
  if ((prompts.rows > 0 && answers.rows > 0) || moves_between(plan)) return;
  const bool reads = prompts.rows > 0;
  teams->add(plan.teams.front().size(), reads ? PassKind::prefill : PassKind::decode,
             reads ? prompts : answers, seconds);
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
