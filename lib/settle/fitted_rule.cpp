// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/fitted_rule.hpp"

#include "lib/ranks/comm/of_first.hpp"
#include "lib/settle/measure/kept_cluster.hpp"
#include "lib/settle/measure/measured.hpp"
#include "lib/simulation/replica_program.hpp"

namespace pecia::settle {
namespace {

/// What rank 0 found.
struct FoundRule {
  uint8_t there = 0;
  parallel::FittedRule rule;

  template <typename A>
  void visit(A& archive) {
    archive(there), archive(rule.new_tokens), archive(rule.miss_rate), archive(rule.constant);
  }
};

FoundRule kept_rule(const std::string& key, const Facts& facts,
                    const resources::Resources& resources) {
  const auto cluster = measure::kept_cluster(key);
  if (!cluster || !cluster->ring_rule) return {};
  if (!cluster->ring_rule->is_of(simulation::ring_of(facts.config, resources))) return {};
  return {1, cluster->ring_rule->rule};
}

}  // namespace

std::optional<parallel::FittedRule> fitted_rule(const Facts& facts,
                                                const attention::Compute& compute,
                                                resources::Resources& resources) {
  if (resources.cp == 1 || resources.ring || resources.elastic) return {};
  comm::Communicator& world = facts.ranks.world;
  FoundRule found;
  if (const auto known = measure::parse_measured(facts.kept, resources)) {
    if (known->fitted_rule) found = {1, *known->fitted_rule};
  } else {
    const std::string key = measure::ranks_key(world, compute);
    if (world.rank() == 0) found = kept_rule(key, facts, resources);
    found = comm::of_first(world, found);
  }
  if (found.there == 0) return {};
  resources.reasons.add("keys or queries by the times that pecia topology measured of both");
  return found.rule;
}

}  // namespace pecia::settle
