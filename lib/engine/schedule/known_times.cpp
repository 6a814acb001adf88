// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/known_times.hpp"

#include <algorithm>

namespace pecia::schedule {

KnownTimes::KnownTimes(const SchedulerLimits& limits)
    : passes(limits.time ? std::optional(limits.time->times) : limits.pass_times),
      teams(limits.team_times),
      teams_change_(limits.elastic),
      token_parking_s_(limits.parking_s / (limits.elastic ? 1 : limits.ring_size)) {
  if (passes && limits.drafts.on() && !limits.elastic)
    answer_passes.emplace(passes->decode.rates());
}

void KnownTimes::add_parking(int64_t tokens, const std::vector<Outcome>& outcomes) {
  moved_tokens_ += tokens;
  moved_s_ += std::ranges::max(outcomes, {}, &Outcome::park_s).park_s;
}

double KnownTimes::parking_s(int64_t tokens) const {
  const double token_s = moved_tokens_ > 0 && moved_s_ > 0
                             ? moved_s_ / static_cast<double>(moved_tokens_)
                             : token_parking_s_;
  return token_s * static_cast<double>(tokens);
}

void KnownTimes::add(const Plan& plan, bool restored, double seconds) {
  if (passes && !restored) {
    const auto [prompts, answers] = work_of(plan);
    const double workers = teams_change_ ? plan.teams.front().workers() : 1;
    passes->add(prompts.shared(workers), answers.shared(workers), seconds);
    if (answer_passes && prompts.rows == 0) answer_passes->add(answers, seconds);
  }
  if (!teams || restored) return;
  const auto [prompts, answers] = busiest_work(plan);
  if (moves_between(plan)) return;  // its keys travel, as in no other pass
  const int degree = plan.teams.front().size();
  const double prompts_s = teams->seconds(degree, PassKind::prefill, prompts);
  const double answers_s = teams->seconds(degree, PassKind::decode, answers);
  const double both_s = prompts_s + answers_s;
  const auto take = [&](PassKind kind, const PassWork& work, double expected_s) {
    if (work.rows > 0 && both_s > 0) teams->add(degree, kind, work, seconds * expected_s / both_s);
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

std::optional<double> KnownTimes::seconds_without_drafts(const Plan& plan) const {
  if (!answer_passes) return {};
  if (work_of(plan).first.rows > 0) return {};
  PassWork tokens{.passes = 1};
  for (const PlanItem& item : plan.items) {
    if (item.samples() == 0) return {};  // it computes rows again
    ++tokens.rows;
    tokens.pairs += static_cast<double>(item.first_sampled() + 1);
  }
  if (!answer_passes->knows(tokens.rows)) return {};
  return answer_passes->seconds(tokens);
}

}  // namespace pecia::schedule
