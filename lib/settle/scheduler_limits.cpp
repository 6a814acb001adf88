// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/scheduler_limits.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "lib/engine/schedule/job_limits.hpp"

namespace pecia::settle {
namespace {

/// Where teams do not change, `times` are of all instances together, which share rows and pairs.
schedule::PassTimes of_one_instance(const schedule::PassTimes& times,
                                    const resources::Resources& resources) {
  const double share = resources.shares();
  const auto of_one = [&](const schedule::RateFit& fit) {
    const schedule::PassRates& all = fit.rates();
    return schedule::RateFit({all.pass_s, share * all.row_s, share * all.pair_s});
  };
  return {of_one(times.prefill), of_one(times.decode)};
}

}  // namespace

schedule::TeamCosts team_costs(const model::ModelConfig& config,
                               const resources::Resources& resources,
                               const parallel::RingRates& rates) {
  constexpr double message_s = 30e-6;  // until passes of teams have been measured
  // Likewise where rates of links are not measured: with one rank, or parallel.ring given.
  constexpr double at_once = std::numeric_limits<double>::infinity();
  return {.message_s = message_s,
          .bytes_per_second = rates.bandwidth > 0 ? rates.bandwidth : at_once,
          .kv_bytes_per_token = static_cast<double>(resources::kv_bytes_of_rank(config, resources)),
          .query_bytes_per_row = schedule::query_bytes_per_row(config, resources),
          .layers = static_cast<int>(config.layers),
          .hides_keys = resources.gpus,
          .state_bytes = static_cast<double>(config.state_bytes(resources.sp * resources.tp))};
}

schedule::SchedulerLimits scheduler_limits(const job::Job& job, const model::ModelConfig& config,
                                           resources::Resources resources,
                                           const measure::Measured& measured,
                                           std::optional<schedule::TimeLimit> time,
                                           std::shared_ptr<const io::Detokenizer> detokenizer) {
  resources.shift_threshold = measured.shift_threshold;
  schedule::SchedulerLimits limits = schedule::limits_of(job, config, resources);
  if (limits.decides_by_times() && time)
    limits.team_times.emplace(of_one_instance(time->times, resources),
                              team_costs(config, resources, measured.ring), resources.cp);
  limits.ring_rates = measured.ring;
  limits.fitted_rule = measured.fitted_rule;
  limits.detokenizer = std::move(detokenizer);
  limits.time = std::move(time);
  return limits;
}

}  // namespace pecia::settle
