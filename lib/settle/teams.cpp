// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/teams.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lib/engine/execute/estimated_times.hpp"
#include "lib/engine/schedule/simulated_requests.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/settle/batch_sample.hpp"
#include "lib/settle/measure/measured.hpp"
#include "lib/settle/memory.hpp"
#include "lib/settle/scheduler_limits.hpp"

namespace pecia::settle {
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
double expected_s(const job::Job& job, const model::ModelConfig& config,
                  const resources::Resources& resources, const schedule::TeamTimes& times,
                  const measure::Measured& measured,
                  const std::vector<schedule::SimulatedRequest>& requests) {
  schedule::SchedulerLimits limits = scheduler_limits(job, config, resources, measured, {}, {});
  if (limits.decides_by_times()) limits.team_times = times;
  const schedule::Simulation found = schedule::simulate(limits, times, requests);
  return job.batch.arrivals == job::Arrivals::replay ? mean_of_answered(found.ttft_s)
                                                     : found.seconds;
}

}  // namespace

Settled choose_teams(const Facts& facts, const Rates& rates, Settled ring) {
  const model::ModelConfig& config = facts.config;
  comm::Communicator& world = facts.ranks.world;
  if (!resources::may_become_elastic(ring.job, config, ring.resources)) return ring;
  const auto kept = measure::kept_elastic(facts.kept, ring.resources);
  if (kept == false) return ring;

  // The job keeps `cp: auto`; its copy is asked what teams would have.
  resources::Resources elastic = ring.resources;
  job::Job job = ring.job;
  job.parallel.cp.elastic = true;
  resources::resolve_grid(job, config, world.size(), elastic);
  elastic = with_memory(facts, ring.job, std::move(elastic));
  if (kept) {
    elastic.reasons.add_first("cp elastic: as this run began");
    return {std::move(ring.job), std::move(elastic)};
  }

  const measure::Measured measured{rates.ring, ring.resources.shift_threshold, {}};
  double ring_s = 0, elastic_s = 0;
  comm::together(world, [&] {
    if (!facts.ranks.is_root()) return;
    const schedule::TeamTimes times(
        execute::estimated_times(config, elastic, facts.matrices,
                                 resources::code_use(ring.job, config, elastic),
                                 rates.product_flops),
        team_costs(config, elastic, rates.ring), elastic.cp);
    const auto all = schedule::simulated_requests(*facts.inputs, ring.job.batch);
    const int instances = elastic.cp;
    // Instances must have something to choose from, also where a request has many turns.
    const size_t most = std::max<size_t>(requests_of_turns(all, std::max(512, 16 * instances)),
                                         2 * static_cast<size_t>(instances));
    const auto requests = part_of_a_replica(all, elastic.dp, most);
    elastic_s = expected_s(ring.job, config, elastic, times, measured, requests);
    ring_s = expected_s(ring.job, config, ring.resources, times, measured, requests);
  });
  const bool gains = world.all_reduce_max(elastic_s < (1 - least_gain) * ring_s ? 1 : 0) > 0;
  Settled chosen = std::move(ring);
  if (gains) chosen.resources = std::move(elastic);
  if (ring_s > 0)  // on the root rank, where anything can run
    chosen.resources.reasons.add_first(fmt::format(
        "cp {}: teams that change should take {:.0f} % {} time {}", gains ? "elastic" : "one ring",
        100 * std::abs(1 - elastic_s / ring_s), elastic_s < ring_s ? "less" : "more",
        chosen.job.batch.arrivals == job::Arrivals::replay ? "to the first token"
                                                           : "for this batch"));
  return chosen;
}

}  // namespace pecia::settle
