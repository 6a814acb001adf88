// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/trial_passes.hpp"

#include <algorithm>

namespace pecia::execute {

using parallel::PassSequence;

schedule::Plan TrialPasses::feed(int64_t first, int64_t count, int64_t tokens, int64_t cached,
                                 bool sampled) const {
  schedule::Plan plan =
      plan_of(by_levels(tokens) ? parallel::AttentionExchange::levels : prefill_ring,
              modes.sharding(count * tokens, true));
  for (int64_t i = first; i < first + count; ++i) {
    plan.added.push_back(
        new_sequence(i, cached, slots_read(cached) + slots(tokens + virtual_ranks)));
    plan.turns.push_back({i, {}, 0, cached + tokens});
    plan.items.push_back({chunk(i, cached, tokens), std::vector<int32_t>(tokens), cached + tokens,
                          sampled ? 0 : -1});
  }
  return plan;
}

schedule::Plan TrialPasses::step(int64_t first, int64_t count, int64_t tokens, bool are_new) const {
  schedule::Plan plan = plan_of(modes.decode_ring, modes.sharding(count, false));
  for (int64_t i = first; i < first + count; ++i) {
    if (are_new) {
      plan.added.push_back(new_sequence(i, tokens, slots_read(tokens) + slots(virtual_ranks)));
      if (virtual_ranks == instances)
        plan.added.back().state.state_holder = static_cast<int32_t>(i % instances);
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

int64_t TrialPasses::slots_read(int64_t tokens) const {
  const int64_t each = tokens_per_pass.value_or(std::max<int64_t>(1, tokens));
  return tokens / each * slots(each) + slots(tokens % each);
}

schedule::Plan TrialPasses::plan_of(parallel::AttentionExchange ring,
                                    parallel::Sharding sharding) const {
  schedule::Plan plan;
  plan.teams = {parallel::team_of_all(instances, ring, sharding)};
  return plan;
}

schedule::NewSequence TrialPasses::new_sequence(int64_t sequence, int64_t cached,
                                                int64_t slots_each) const {
  parallel::KvMap map(instances, virtual_ranks / instances);
  map.add(sequence, std::vector<int64_t>(instances, slots_each));
  const int64_t each = tokens_per_pass.value_or(cached);
  for (int64_t first = 0; first < cached; first += each)
    map.append(chunk(sequence, first, std::min(each, cached - first)),
               parallel::team_of_all(instances));
  schedule::NewSequence made{sequence, map.state(sequence)};
  if (cached == 0) made.state.held.clear();
  return made;
}

parallel::PassSequence TrialPasses::chunk(int64_t sequence, int64_t first, int64_t count) const {
  if (by_levels(count)) return {sequence, first, count, PassSequence::contiguous};
  return {sequence, first, count, PassSequence::balanced, virtual_ranks};
}

}  // namespace pecia::execute
