// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/team_forecast.hpp"

#include <algorithm>
#include <cmath>

#include "lib/engine/execute/estimated_times.hpp"
#include "lib/settle/batch_sample.hpp"
#include "lib/settle/scheduler_limits.hpp"

namespace pecia::settle {
namespace {

double mean_of_answered(const std::vector<double>& seconds) {
  double sum = 0, count = 0;
  for (const double each : seconds)
    if (!std::isnan(each)) sum += each, ++count;
  return count == 0 ? 0 : sum / count;
}

}  // namespace

TeamForecast::TeamForecast(const Facts& facts, const Rates& rates, const job::Job& job,
                           const resources::Resources& teams)
    : facts_(facts),
      rates_(rates),
      job_(job),
      times_(execute::estimated_times(facts.config, teams, facts.matrices,
                                      resources::code_use(job, facts.config, teams),
                                      rates.product_flops),
             team_costs(facts.config, teams, rates.ring), teams.cp) {
  const auto all = schedule::simulated_requests(*facts.inputs, job.batch);
  const int instances = teams.cp;
  // Instances must have something to choose from, also where a request has many turns.
  const size_t most = std::max<size_t>(requests_of_turns(all, std::max(512, 16 * instances)),
                                       2 * static_cast<size_t>(instances));
  requests_ = part_of_a_replica(all, teams.dp, most);
}

double TeamForecast::seconds(const resources::Resources& resources) const {
  const measure::Measured measured{rates_.ring, resources.shift_threshold, {}};
  schedule::SchedulerLimits limits =
      scheduler_limits(job_, facts_.config, resources, measured, {}, {});
  if (limits.decides_by_times()) limits.team_times = times_;
  const schedule::Simulation found = schedule::simulate(limits, times_, requests_);
  return job_.batch.arrivals == job::Arrivals::replay ? mean_of_answered(found.ttft_s)
                                                      : found.seconds;
}

const char* forecast_text(const job::Job& job) {
  return job.batch.arrivals == job::Arrivals::replay ? "to the first token" : "for this batch";
}

}  // namespace pecia::settle
