// SPDX-License-Identifier: Apache-2.0
#include "lib/run/choose_teams.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lib/engine/execute/estimated_times.hpp"
#include "lib/engine/schedule/simulated_requests.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/run/scheduler_limits.hpp"
#include "lib/run/settle.hpp"

namespace pecia::run {
namespace {

/// Minimum gain before `cp: auto` goes elastic.
constexpr double least_gain = 0.05;

double mean_of_answered(const std::vector<double>& seconds) {
  double sum = 0, count = 0;
  for (const double each : seconds)
    if (!std::isnan(each)) sum += each, ++count;
  return count == 0 ? 0 : sum / count;
}

/// What the batch is expected to need on these resources: seconds until its end, or until the mean
/// first token.
double expected_s(const Setup& setup, const resources::Resources& resources,
                  const schedule::TeamTimes& times, const measure::Measured& measured,
                  const std::vector<schedule::SimulatedRequest>& requests) {
  schedule::SchedulerLimits limits =
      scheduler_limits(setup.job, setup.config, resources, measured, {}, {});
  if (limits.elastic) limits.team_times = times;
  const schedule::Simulation found = schedule::simulate(limits, times, requests);
  return setup.job.batch.arrivals == job::Arrivals::replay ? mean_of_answered(found.ttft_s)
                                                           : found.seconds;
}

}  // namespace

std::vector<schedule::SimulatedRequest> part_of_a_replica(
    const std::vector<schedule::SimulatedRequest>& all, int replicas, size_t most) {
  const bool arrive = !all.empty() && all.front().arrival_s.has_value();
  std::vector<schedule::SimulatedRequest> chosen;
  for (const size_t i : part_of_a_replica(all.size(), arrive, replicas, most))
    chosen.push_back(all[i]);
  return chosen;
}

std::vector<size_t> part_of_a_replica(size_t count, bool arrive, int replicas, size_t most) {
  PECIA_CHECK(replicas >= 1 && most >= 1, "{} requests, {} replicas", most, replicas);
  const size_t of_replica = (count + replicas - 1) / replicas;
  const size_t step = replicas * (arrive ? 1 : (of_replica + most - 1) / most);
  std::vector<size_t> chosen;
  for (size_t i = 0; i < count && chosen.size() < most; i += step) chosen.push_back(i);
  return chosen;
}

size_t requests_of_turns(const std::vector<schedule::SimulatedRequest>& all, int64_t turns) {
  int64_t of_all = 0;
  for (const schedule::SimulatedRequest& request : all) of_all += std::ssize(request.turns);
  if (of_all <= turns) return std::max<size_t>(1, all.size());
  const auto share = static_cast<double>(turns) / static_cast<double>(of_all);
  return static_cast<size_t>(std::ceil(share * static_cast<double>(all.size())));
}

resources::Resources choose_teams(const Setup& setup, const LoadedWeights& weights,
                                  RunInputs& inputs, const parallel::RingRates& rates,
                                  double product_flops) {
  resources::Resources ring = setup.resources;
  if (!resources::may_become_elastic(setup.job, setup.config, ring)) return ring;
  const auto kept = measure::kept_elastic(setup.kept, ring);
  if (kept == false) return ring;

  resources::Resources elastic = ring;
  job::Job job = setup.job;
  job.parallel.cp.elastic = true;
  resources::resolve_grid(job, setup.config, setup.world().size(), elastic);
  elastic = with_memory(setup, elastic, weights, inputs);
  if (kept) {
    elastic.reasons.add_first("cp elastic: as this run began");
    return elastic;
  }

  const measure::Measured measured{rates, ring.shift_threshold, {}};
  double ring_s = 0, elastic_s = 0;
  comm::together(setup.world(), [&] {
    if (!setup.chief()) return;
    const schedule::TeamTimes times(execute::estimated_times(setup.config, elastic, weights.held(),
                                                             code_use_of(setup), product_flops),
                                    team_costs(setup.config, elastic, rates), elastic.cp);
    const auto all = schedule::simulated_requests(*inputs.inputs, setup.job.batch);
    const int instances = elastic.cp;
    // Instances must have something to choose from, also where a request has many turns.
    const size_t most = std::max<size_t>(requests_of_turns(all, std::max(512, 16 * instances)),
                                         2 * static_cast<size_t>(instances));
    const auto requests = part_of_a_replica(all, elastic.dp, most);
    elastic_s = expected_s(setup, elastic, times, measured, requests);
    ring_s = expected_s(setup, ring, times, measured, requests);
  });
  const bool gains =
      setup.world().all_reduce_max(elastic_s < (1 - least_gain) * ring_s ? 1 : 0) > 0;
  resources::Resources chosen = gains ? std::move(elastic) : std::move(ring);
  if (ring_s > 0)  // on the chief, where anything can run
    chosen.reasons.add_first(fmt::format(
        "cp {}: teams that change should take {:.0f} % {} time {}", gains ? "elastic" : "one ring",
        100 * std::abs(1 - elastic_s / ring_s), elastic_s < ring_s ? "less" : "more",
        setup.job.batch.arrivals == job::Arrivals::replay ? "to the first token"
                                                          : "for this batch"));
  return chosen;
}

}  // namespace pecia::run
