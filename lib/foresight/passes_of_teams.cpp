// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/passes_of_teams.hpp"

#include "lib/core/error.hpp"

namespace pecia::foresight {

schedule::Plan read_by_team(const execute::TrialPasses& passes, int64_t tokens, int64_t cached) {
  schedule::Plan plan = passes.feed(0, 1, tokens);
  plan.teams.front().ring = parallel::AttentionExchange::pass_kv;
  parallel::SequenceState& state = plan.added.front().state;
  state.length = cached;
  state.reserved.assign(passes.instances, 0);
  state.reserved.front() = cached + tokens;
  if (cached > 0) {
    state.held.resize(passes.instances);
    state.held.front() = {{0, cached, 1}};
  }
  schedule::PlanItem& item = plan.items.front();
  item.rows.first = cached;
  item.rows.virtual_ranks = 0;  // a team's rows are cut by its workers
  item.prompt_end = plan.turns.front().answer_begin = cached + tokens;
  if (passes.instances > 1) item.kept = {{0, tokens}};
  return plan;
}

schedule::Plan step_of_team(const execute::TrialPasses& passes, int masters, int64_t sequences,
                            int64_t tokens) {
  PECIA_CHECK(masters >= 1 && masters <= passes.instances, "{} masters of {} instances", masters,
              passes.instances);
  schedule::Plan plan = passes.step(0, sequences, tokens, true);
  parallel::Team& team = plan.teams.front();
  team.ring = passes.instances == 1 ? parallel::AttentionExchange::pass_kv
                                    : parallel::AttentionExchange::broadcast_q;
  team.holders = passes.instances - masters;
  for (schedule::PlanItem& item : plan.items) {
    item.rows.owner = static_cast<int32_t>(item.rows.sequence % masters);
    item.rows.virtual_ranks = 0;
  }
  return plan;
}

}  // namespace pecia::foresight
