// SPDX-License-Identifier: Apache-2.0
#include "lib/execute/trial_passes.hpp"

#include "lib/core/error.hpp"

namespace pecia::execute {

using parallel::PassSequence;

schedule::Plan TrialPasses::feed(int64_t first, int64_t count, int64_t tokens, int64_t cached,
                                 bool sampled) const {
  const bool by_levels = levels_from && tokens >= *levels_from;
  schedule::Plan plan = plan_of(by_levels ? parallel::Ring::levels : prefill_ring,
                                modes.sharding(count * tokens, true));
  for (int64_t i = first; i < first + count; ++i) {
    plan.added.push_back(new_sequence(i, cached, slots(cached) + slots(tokens + virtual_ranks)));
    plan.turns.push_back({i, {}, 0, cached + tokens});
    plan.items.push_back(
        {{i, cached, tokens, by_levels ? PassSequence::contiguous : PassSequence::balanced,
          by_levels ? 0 : virtual_ranks},
         std::vector<int32_t>(tokens),
         cached + tokens,
         sampled ? 0 : -1});
  }
  return plan;
}

schedule::Plan TrialPasses::step(int64_t first, int64_t count, int64_t tokens, bool are_new) const {
  schedule::Plan plan = plan_of(modes.decode_ring, modes.sharding(count, false));
  for (int64_t i = first; i < first + count; ++i) {
    if (are_new) {
      plan.added.push_back(new_sequence(i, tokens, slots(tokens + virtual_ranks)));
      plan.turns.push_back({i, {}, 0, tokens});
    }
    plan.items.push_back(
        {{i, tokens, 1, static_cast<int32_t>(i % virtual_ranks), virtual_ranks}, {0}, tokens, 1});
  }
  return plan;
}

int64_t TrialPasses::slots(int64_t tokens) const {
  const int64_t unit = 2 * int64_t{virtual_ranks};
  return (tokens + unit - 1) / unit * unit / instances;
}

schedule::Plan TrialPasses::plan_of(parallel::Ring ring, parallel::Sharding sharding) const {
  schedule::Plan plan;
  plan.teams = {parallel::team_of_all(instances, ring, sharding)};
  return plan;
}

schedule::NewSequence TrialPasses::new_sequence(int64_t sequence, int64_t cached,
                                                int64_t slots_each) const {
  schedule::NewSequence made{
      sequence,
      {schedule::NewSequence::no_parent, cached, std::vector<int64_t>(instances, slots_each), {}}};
  if (cached == 0) return made;
  PECIA_CHECK(virtual_ranks == instances, "{} cached tokens on {} instances of {} virtual ranks",
              cached, instances, virtual_ranks);
  for (int instance = 0; instance < instances; ++instance) {
    auto& held = made.state.held.emplace_back();
    for (const auto& range :
         parallel::rows_of({sequence, 0, cached, PassSequence::balanced}, instances, instance))
      held.push_back({range.begin, range.size(), 1});
  }
  return made;
}

}  // namespace pecia::execute
