// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/team_scheduler.hpp"

#include <cmath>
#include <utility>

#include "lib/ranks/comm/agree.hpp"
#include "lib/settle/team_forecast.hpp"

namespace pecia::settle {
namespace {

using job::TeamScheduler;

/// Minimum gain before the objective's own scheduler gives way.
constexpr double least_gain_of_scheduler = 0.05;

const char* word_of(TeamScheduler scheduler) {
  return scheduler == TeamScheduler::greedy ? "greedy" : "loongserve";
}

}  // namespace

Settled choose_scheduler(const Facts& facts, const Rates& rates, Settled begun) {
  const resources::Resources& own = begun.resources;
  if (!own.elastic || begun.job.parallel.scheduler || own.answering > 0 ||
      begun.job.batch.policy != job::Policy::prefill_first || rates.ring.bandwidth <= 0)
    return begun;
  resources::Resources other = own;
  other.scheduler =
      own.scheduler == TeamScheduler::greedy ? TeamScheduler::loongserve : TeamScheduler::greedy;
  double own_s = 0, other_s = 0;
  comm::Communicator& world = facts.ranks.world;
  comm::together(world, [&] {
    if (!facts.ranks.is_root()) return;
    const TeamForecast forecast(facts, rates, begun.job, own);
    own_s = forecast.seconds(own);
    other_s = forecast.seconds(other);
  });
  const bool gains =
      world.all_reduce_max(other_s < (1 - least_gain_of_scheduler) * own_s ? 1 : 0) > 0;
  const TeamScheduler rejected = gains ? own.scheduler : other.scheduler;
  if (gains) begun.resources = std::move(other);
  const double chosen_s = gains ? other_s : own_s, rejected_s = gains ? own_s : other_s;
  if (rejected_s > 0)  // on the root rank
    begun.resources.reasons.add(fmt::format(
        "scheduler {}: {} should take {:.0f} % {} time {}", word_of(begun.resources.scheduler),
        word_of(rejected), 100 * std::abs(rejected_s / chosen_s - 1),
        rejected_s < chosen_s ? "less" : "more", forecast_text(begun.job)));
  return begun;
}

}  // namespace pecia::settle
