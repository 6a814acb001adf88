// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/teams.hpp"

#include <cmath>
#include <utility>

#include "lib/ranks/comm/agree.hpp"
#include "lib/settle/measure/measured.hpp"
#include "lib/settle/memory.hpp"
#include "lib/settle/team_forecast.hpp"

namespace pecia::settle {
namespace {

/// Minimum gain before `cp: auto` goes elastic.
constexpr double least_gain = 0.05;

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

  double ring_s = 0, elastic_s = 0;
  comm::together(world, [&] {
    if (!facts.ranks.is_root()) return;
    const TeamForecast forecast(facts, rates, ring.job, elastic);
    elastic_s = forecast.seconds(elastic);
    ring_s = forecast.seconds(ring.resources);
  });
  const bool gains = world.all_reduce_max(elastic_s < (1 - least_gain) * ring_s ? 1 : 0) > 0;
  Settled chosen = std::move(ring);
  if (gains) chosen.resources = std::move(elastic);
  if (ring_s > 0)  // on the root rank, where anything can run
    chosen.resources.reasons.add_first(
        fmt::format("cp {}: teams that change should take {:.0f} % {} time {}",
                    gains ? "elastic" : "one ring", 100 * std::abs(1 - elastic_s / ring_s),
                    elastic_s < ring_s ? "less" : "more", forecast_text(chosen.job)));
  return chosen;
}

}  // namespace pecia::settle
