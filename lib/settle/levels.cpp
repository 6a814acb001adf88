// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/levels.hpp"

#include <algorithm>
#include <utility>

#include "lib/base/report/format.hpp"
#include "lib/engine/schedule/job_limits.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/parallel/level_rule.hpp"
#include "lib/settle/memory.hpp"
#include "lib/work/resources/footprint.hpp"

namespace pecia::settle {

std::optional<tune::TunedQuestion> settle_tuned(const model::ModelConfig& config,
                                                const Ranks& ranks, resources::Resources& resources,
                                                job::Job& job) {
  if (!tune::is_tuned(job)) return {};
  int64_t longest = 1;
  comm::together(ranks.world, [&] {
    if (ranks.is_root())
      longest = resources::prompt_footprint(job, config, batch::Inputs(job, config)).longest_tokens;
  });
  longest = std::min(ranks.world.all_reduce_max(longest), config.max_positions);
  const auto levels_here = tune::levels_by_place(resources.level_places(ranks.replica_places()));
  std::optional<tune::TunedQuestion> question;
  comm::together(ranks.world, [&] {
    question = tune::settle_tuned(job, config, longest, levels_here, resources);
  });
  return question;
}

Settled settle_levels(const Facts& facts, const parallel::RingRates& rates, Settled settled) {
  resources::Resources& resources = settled.resources;
  if (facts.tuned) {
    bool again = false;
    comm::together(facts.ranks.world, [&] {
      again = tune::settle_tuned_again(*facts.tuned, rates, settled.job, resources);
    });
    if (again)  // passes that drop less need more memory
      resources = with_memory(facts, settled.job, std::move(resources));
    return settled;
  }
  if (!resources.levels_from() || resources.sparse->micros) return settled;
  parallel::RingInputs in;
  in.ranks = resources.cp;
  in.shape = schedule::ring_shape(facts.config, resources);
  in.rates = rates;
  in.load.add(resources.max_batch_tokens, 0);
  const auto levels = tune::levels_by_place(resources.level_places(facts.ranks.replica_places()))(
      resources.sparse->levels);
  const parallel::Micros micros = parallel::micros_by_rule(in, levels, resources.sparse->rule);
  resources.sparse->micros = micros;
  resources.reasons.add(fmt::format(
      "levels in {} part{}: by the link's {}B/s beside {}FLOP/s", parallel::to_string(micros),
      micros == parallel::Micros{1} ? "" : "s", report::format_count(rates.all_to_all_bandwidth),
      report::format_count(rates.flops)));
  return settled;
}

}  // namespace pecia::settle
