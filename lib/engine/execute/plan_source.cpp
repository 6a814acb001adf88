// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/plan_source.hpp"

namespace pecia::execute {

void record(PlanSource& from, std::vector<batch::Finished> finished,
            execute::ReplicaTotals& totals) {
  std::vector<io::TurnUpdate> updates;
  for (batch::Finished& turn : finished) {
    turn.result.mode = from.observer.mode(turn.result.mode);
    turn.result.replica = from.replica;
    totals.failed += turn.state == io::TurnState::failed;
    if (turn.state == io::TurnState::done)
      execute::count_done(turn.result, from.results.layout().turns[turn.row], totals);
    updates.push_back({turn.row, turn.result, turn.state});
  }
  totals.sharing = from.scheduler.sharing();
  totals.demand = from.scheduler.demand();
  totals.drafts = from.scheduler.draft_counts();
  totals.answer_quantiles = from.scheduler.lengths().quantiles();
  if (updates.empty()) return;
  if (from.journal != nullptr)
    from.journal->append(updates);
  else
    from.results.write_all(updates);
  if (from.saves != nullptr) from.saves->forget_settled();
}

std::optional<schedule::Plan> next_pass(PlanSource& from, bool stopping, double now,
                                        execute::ReplicaTotals& totals) {
  schedule::Scheduler& scheduler = from.scheduler;
  std::optional<schedule::Plan> plan;
  bool taken = false;
  scheduler.forget_assumed_end_once_over(now);
  do {
    taken = false;
    while (!stopping) {
      auto request = from.source.take(scheduler, now);
      if (!request) break;
      if (from.saves != nullptr) from.saves->find(*request);
      scheduler.add(std::move(*request), 0);
      taken = true;
    }
    if (!stopping) plan = scheduler.next(now);
    record(from, scheduler.take_finished(), totals);
    const bool idle = !plan && scheduler.num_under_way() == 0;
    if (!stopping && idle && scheduler.forget_assumed_end()) taken = true;
  } while (!plan && taken);
  totals.arrived = from.source.arrived_turns();
  return plan;
}

}  // namespace pecia::execute
