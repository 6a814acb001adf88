// SPDX-License-Identifier: Apache-2.0
#include "lib/execute/pass_maker.hpp"

#include <chrono>
#include <thread>

namespace pecia::execute {

void record(PassMaker& pass_maker, std::vector<schedule::Finished> finished,
            batch::ReplicaTotals& totals) {
  std::vector<io::TurnUpdate> updates;
  for (schedule::Finished& turn : finished) {
    turn.result.mode = pass_maker.mode(turn.result.mode);
    turn.result.replica = pass_maker.replica;
    totals.failed += turn.state == io::TurnState::failed;
    if (turn.state == io::TurnState::done)
      batch::count_done(turn.result, pass_maker.results.layout().turns[turn.row].slots, totals);
    updates.push_back({turn.row, turn.result, turn.state});
  }
  totals.sharing = pass_maker.scheduler.sharing();
  if (updates.empty()) return;
  if (pass_maker.journal != nullptr)
    pass_maker.journal->append(updates);
  else
    pass_maker.results.write_all(updates);
  if (pass_maker.saves != nullptr) pass_maker.saves->forget_settled();
}

std::optional<schedule::Plan> next_pass(PassMaker& pass_maker, bool stopping, double now,
                                        batch::ReplicaTotals& totals) {
  schedule::Scheduler& scheduler = pass_maker.scheduler;
  std::optional<schedule::Plan> plan;
  bool taken = false;
  scheduler.forget_assumed_end_once_over(now);
  do {
    taken = false;
    while (!stopping) {
      auto request = pass_maker.source.take(scheduler, now);
      if (!request) break;
      if (pass_maker.saves != nullptr) pass_maker.saves->find(*request);
      scheduler.add(std::move(*request), 0);
      taken = true;
    }
    if (!stopping) plan = scheduler.next(now);
    record(pass_maker, scheduler.take_finished(), totals);
    const bool idle = !plan && scheduler.num_under_way() == 0;
    if (!stopping && idle && scheduler.forget_assumed_end()) taken = true;
  } while (!plan && taken);
  totals.arrived = pass_maker.source.arrived_turns();
  return plan;
}

RunClock steady_run_clock() {
  using Seconds = std::chrono::duration<double>;
  const auto begin = std::chrono::steady_clock::now();
  return {[begin] { return Seconds(std::chrono::steady_clock::now() - begin).count(); },
          [](double seconds) { std::this_thread::sleep_for(Seconds(seconds)); }};
}

}  // namespace pecia::execute
