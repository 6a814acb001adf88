// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/fitted_rule.hpp"

#include "lib/ranks/comm/of_first.hpp"
#include "lib/settle/measure/kept_cluster.hpp"
#include "lib/settle/measure/measured.hpp"
#include "lib/simulation/replica_program.hpp"

namespace pecia::settle {
namespace {

/// Its three coefficients; empty: none is kept.
std::vector<double> kept_rule(const std::string& key, const Facts& facts,
                              const resources::Resources& resources) {
  const auto cluster = measure::kept_cluster(key);
  if (!cluster || !cluster->ring_rule) return {};
  if (!cluster->ring_rule->is_of(simulation::ring_of(facts.config, resources))) return {};
  const parallel::FittedRule& rule = cluster->ring_rule->rule;
  return {rule.new_tokens, rule.miss_rate, rule.constant};
}

}  // namespace

std::optional<parallel::FittedRule> fitted_rule(const Facts& facts,
                                                const attention::Compute& compute,
                                                resources::Resources& resources) {
  if (resources.cp == 1 || resources.ring || resources.elastic) return {};
  comm::Communicator& world = facts.ranks.world;
  std::optional<parallel::FittedRule> rule;
  if (const auto known = measure::parse_measured(facts.kept, resources)) {
    rule = known->fitted_rule;
  } else {
    const std::string key = measure::ranks_key(world, compute);
    const std::vector<double> kept = comm::of_first(
        world, world.rank() == 0 ? kept_rule(key, facts, resources) : std::vector<double>());
    if (!kept.empty()) rule = {kept[0], kept[1], kept[2]};
  }
  if (!rule) return {};
  resources.reasons.add("keys or queries by the times that pecia topology measured of both");
  return rule;
}

}  // namespace pecia::settle
