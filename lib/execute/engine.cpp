// SPDX-License-Identifier: Apache-2.0
#include "lib/execute/engine.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace pecia::execute {
namespace {

using report::Kind;
using report::ScopedSpan;

void record(Planner& planner, std::vector<schedule::Finished> finished, batch::Tally& tally) {
  std::vector<io::TurnUpdate> updates;
  for (schedule::Finished& turn : finished) {
    turn.result.mode = planner.mode(turn.result.mode);
    turn.result.replica = planner.replica;
    tally.failed += turn.state == io::TurnState::failed;
    if (turn.state == io::TurnState::done)
      batch::count_done(turn.result, planner.results.layout().turns[turn.row].slots, tally);
    updates.push_back({turn.row, turn.result, turn.state});
  }
  if (updates.empty()) return;
  planner.results.write_all(updates);
  if (planner.saves != nullptr) planner.saves->forget_settled();
}

/// Into the trace: why the pass's prompts let keys or queries travel.
void note_rings(const std::vector<schedule::ChunkRing>& rings, report::Recorder& recorder) {
  for (const auto& [sequence, decision] : rings) {
    const parallel::RingInputs& in = decision.in;
    recorder.note("ring_rule",
                  {{"sequence", static_cast<double>(sequence)},
                   {"new_tokens", in.load.new_tokens},
                   {"cached_tokens", in.load.cached_tokens()},
                   {"ranks", in.ranks},
                   {"flops", in.rates.flops},
                   {"bandwidth", in.rates.bandwidth},
                   {"all_to_all_bandwidth", in.rates.all_to_all_bandwidth},
                   {"hiding_tokens", decision.hiding_tokens},
                   {"miss_rate", in.load.miss_rate()},
                   {"miss_rate_limit", decision.miss_rate_limit}},
                  decision.ring == parallel::Ring::pass_kv ? "pass_kv" : "pass_q");
  }
}

/// The next pass, a wait, keys and values to keep, or the last plan. Turns that end without a pass
/// are recorded.
schedule::Plan make_plan(Planner& planner, bool stopping, double now, batch::Tally& tally) {
  constexpr double longest_wait_s = 0.1;  // then signals and limits are looked at again
  schedule::Scheduler& scheduler = planner.scheduler;
  stopping = stopping || (planner.saves != nullptr && planner.saves->draining());
  std::optional<schedule::Plan> plan;
  bool taken = false;
  do {
    taken = false;
    while (!stopping) {
      auto request = planner.source.take(scheduler, now);
      if (!request) break;
      if (planner.saves != nullptr) planner.saves->find(*request);
      scheduler.add(std::move(*request), 0);
      taken = true;
    }
    if (!stopping) plan = scheduler.next(now);
    record(planner, scheduler.take_finished(), tally);
    if (!stopping && !plan && scheduler.forget_assumed_end()) taken = true;
  } while (!plan && taken);
  tally.arrived = planner.source.arrived_turns();
  const auto arrival = planner.source.next_arrival();
  const bool ends = !plan && (stopping || scheduler.out_of_time() || !arrival);
  if (ends && planner.saves != nullptr) {
    if (!planner.saves->draining()) record(planner, scheduler.partial(), tally);
    plan = planner.saves->next(scheduler, now, tally);
  }
  if (plan) return std::move(*plan);
  schedule::Plan none;
  none.last = ends;
  const bool recorded = planner.saves != nullptr && planner.saves->draining();
  if (none.last != 0 && !recorded) record(planner, scheduler.partial(), tally);
  if (none.last == 0) none.wait_s = std::min(*arrival - now, longest_wait_s);
  return none;
}

/// In naps, so that ranks that want something of this one meanwhile need not wait for its end.
void wait(double seconds, const RunClock& clock, comm::Communicator& replica) {
  constexpr double nap_s = 1e-3;
  const double end = clock.seconds() + seconds;
  for (double left = seconds; left > 0; left = end - clock.seconds()) {
    clock.sleep_s(std::min(left, nap_s));
    replica.progress();
  }
}

/// What a rank says after a pass.
struct Answer {
  uint8_t told = 0;  ///< to stop
  schedule::Outcome outcome;

  template <typename A>
  void visit(A& archive) {
    archive(told);
    outcome.visit(archive);
  }
};

double flops_of(const report::Recorder& recorder) {
  return recorder.totals().flops;
}

}  // namespace

RunClock steady_run_clock() {
  using Seconds = std::chrono::duration<double>;
  const auto begin = std::chrono::steady_clock::now();
  return {[begin] { return Seconds(std::chrono::steady_clock::now() - begin).count(); },
          [](double seconds) { std::this_thread::sleep_for(Seconds(seconds)); }};
}

batch::Tally run_replica(comm::Communicator& replica, Worker& worker, report::Recorder& recorder,
                         Planner* planner, const std::function<bool()>& told,
                         const RunClock& clock) {
  constexpr int root = 0;
  constexpr int64_t no_pass = -1;
  batch::Tally tally;
  batch::PassCounter counter;
  bool any_told = false;
  for (;;) {
    schedule::Plan plan;
    if (planner != nullptr)
      plan = make_plan(*planner, planner->stopping(any_told || told()), clock.seconds(), tally);
    std::vector<std::byte> bytes;
    if (planner != nullptr) bytes = to_bytes(plan);
    {
      const ScopedSpan span(recorder, "wait_for_plan", Kind::idle);
      replica.broadcast(bytes, root);
    }
    if (planner == nullptr) plan = from_bytes<schedule::Plan>(bytes);
    if (plan.last != 0) return tally;
    if (plan.wait_s > 0) {
      const ScopedSpan span(recorder, "wait_for_arrivals", Kind::idle);
      wait(plan.wait_s, clock, replica);
      any_told = replica.all_reduce_max(told() ? 1 : 0) > 0;
      if (planner != nullptr) planner->on_pass(tally);
      continue;
    }

    recorder.set_pass(plan.number);  // before the phase's span, which belongs to it
    if (planner != nullptr && planner->on_begin) planner->on_begin(plan, tally);
    const double begin = clock.seconds();
    const double flops = flops_of(recorder);
    if (planner != nullptr && !plan.saves()) {
      if (planner->on_plan && plan.restore.empty())
        planner->on_plan(plan, planner->scheduler.expected_seconds(plan));
      note_rings(planner->scheduler.chunk_rings(), recorder);
    }
    std::vector<std::vector<std::byte>> gathered;
    {
      const ScopedSpan span(recorder, batch::phase_name(plan), Kind::phase);
      const Answer answer{told(), worker.execute(plan)};
      const ScopedSpan waiting(recorder, "gather_outcomes", Kind::comm);
      gathered = replica.gather(to_bytes(answer), root);
    }
    recorder.set_pass(no_pass);
    if (planner == nullptr) continue;
    std::vector<schedule::Outcome> outcomes;
    for (const auto& part : gathered) {
      auto answer = from_bytes<Answer>(part);
      any_told = any_told || answer.told != 0;
      outcomes.push_back(std::move(answer.outcome));
    }
    const double end = clock.seconds();
    if (plan.saves() || !plan.restore.empty()) planner->saves->commit(plan, outcomes, tally);
    if (plan.saves()) continue;
    planner->scheduler.commit(plan, outcomes, end);
    if (outcomes.front().kv.done == 0) plan.restore.clear();  // it was computed after all
    // Load-balanced shards: what one rank computes, they all do.
    counter.count(plan, {begin, end, (flops_of(recorder) - flops) * replica.size()}, tally);
    record(*planner, planner->scheduler.take_finished(), tally);
    planner->on_pass(tally);
  }
}

}  // namespace pecia::execute
