// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/settle.hpp"

#include <utility>

#include "lib/engine/execute/rank_needs.hpp"
#include "lib/settle/levels.hpp"
#include "lib/settle/phases.hpp"
#include "lib/settle/team_scheduler.hpp"
#include "lib/settle/teams.hpp"

namespace pecia::settle {

parallel::RingRates ring_rates(const Facts& facts, const resources::Resources& resources,
                               comm::Communicator& tensors, const attention::Compute& compute,
                               spdlog::logger& log) {
  const auto known = measure::parse_measured(facts.kept, resources);
  return known ? known->ring
               : measure::measure_ring(facts.config, resources, facts.ranks.world, tensors, compute,
                                       log);
}

Settled settle(const Facts& facts, const Rates& rates, Settled begun) {
  Settled teams = choose_teams(facts, rates, std::move(begun));
  Settled phases = choose_phases(facts, rates, std::move(teams));
  return settle_levels(facts, rates.ring, choose_scheduler(facts, rates, std::move(phases)));
}

measure::Measured measured_choices(const Facts& facts, const Settled& settled,
                                   const parallel::RingRates& rates,
                                   const parallel::LinkCosts& links, const LayoutChoice& layout,
                                   const measure::ProductChoice& products,
                                   execute::Replica& replica) {
  const resources::Resources& resources = settled.resources;
  const auto known = measure::parse_measured(facts.kept, resources);
  const auto sent = [&] {
    return execute::sent_per_token(facts.config, resources.sp, resources.tp, resources.ep,
                                   resources.wire.value_or(DType::fp32));
  };
  measure::Measured measured =
      known
          ? *known
          : measure::measure_choices(settled.job, facts.config, resources, sent, rates,
                                     facts.ranks.world, *replica.groups().block, replica.compute());
  measured.links = links;
  if (layout.layout) measured.layout = layout.layout->to_settings();
  if (!resources.gpus) measured.products = measure::products_text(products.products);
  return measured;
}

}  // namespace pecia::settle
