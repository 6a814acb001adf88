// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/replica_loop.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lib/engine/execute/pass_reply.hpp"
#include "lib/engine/execute/yield_notes.hpp"

namespace pecia::execute {
namespace {

using report::Kind;
using report::ScopedSpan;

/// Notes in the trace why keys or queries travel for the pass's prompts.
void note_rings(const std::vector<schedule::ChunkRing>& rings, report::Recorder& recorder) {
  for (const auto& [sequence, decision] : rings) {
    const parallel::RingInputs& in = decision.in;
    std::vector<std::pair<const char*, double>> numbers{
        {"sequence", static_cast<double>(sequence)},
        {"new_tokens", in.load.new_tokens},
        {"cached_tokens", in.load.cached_tokens()},
        {"ranks", in.ranks},
        {"flops", in.rates.flops},
        {"bandwidth", in.rates.bandwidth},
        {"all_to_all_bandwidth", in.rates.all_to_all_bandwidth},
        {"hiding_tokens", decision.hiding_tokens},
        {"miss_rate", in.load.miss_rate()},
        {"miss_rate_limit", decision.miss_rate_limit}};
    if (decision.h) numbers.emplace_back("h", *decision.h);
    recorder.note("ring_rule", numbers,
                  decision.ring == parallel::AttentionExchange::pass_kv ? "pass_kv" : "pass_q");
  }
}

/// Turns that have ended and are not on disk yet. On a GPU they are written while it computes the
/// next pass.
class Unwritten {
 public:
  Unwritten(PlanSource* plans, execute::ReplicaTotals& totals) : plans_(plans), totals_(totals) {}

  void add(std::vector<batch::Finished> finished) {
    std::ranges::move(finished, std::back_inserter(finished_));
  }
  void write() {
    if (!finished_.empty()) record(*plans_, std::exchange(finished_, {}), totals_);
  }

 private:
  PlanSource* plans_;
  execute::ReplicaTotals& totals_;
  std::vector<batch::Finished> finished_;
};

/// Makes the next pass, a wait, a plan that keeps keys and values, or the last plan. Turns that end
/// without a pass are recorded. If no pass is next, `unwritten` is written first.
schedule::Plan make_plan(PlanSource& plans, bool stopping, double now, Unwritten& unwritten,
                         execute::ReplicaTotals& totals) {
  constexpr double longest_wait_s = 0.1;  // then signals and limits are checked again
  schedule::Scheduler& scheduler = plans.scheduler;
  stopping = stopping || (plans.saves != nullptr && plans.saves->draining());
  std::optional<schedule::Plan> plan = next_pass(plans, stopping, now, totals);
  if (!plan) unwritten.write();
  const auto arrival = plans.source.next_arrival();
  const bool ends = !plan && (stopping || scheduler.out_of_time() || !arrival);
  if (ends && plans.saves != nullptr) {
    if (!plans.saves->draining()) record(plans, scheduler.partial(), totals);
    plan = plans.saves->next(scheduler, now, totals);
  }
  if (plan) return std::move(*plan);
  schedule::Plan none;
  none.last = ends;
  const bool recorded = plans.saves != nullptr && plans.saves->draining();
  if (none.last != 0 && !recorded) record(plans, scheduler.partial(), totals);
  if (none.last == 0) none.wait_s = std::min(*arrival - now, longest_wait_s);
  return none;
}

/// Waits in naps, so that ranks that need something of this one meanwhile are soon served.
void wait(double seconds, const RunClock& clock, comm::Communicator& ranks) {
  constexpr double nap_s = 1e-3;
  const double end = clock.seconds() + seconds;
  for (double left = seconds; left > 0; left = end - clock.seconds()) {
    clock.sleep_s(std::min(left, nap_s));
    ranks.progress();
  }
}

/// Executes the plan, and writes what is unwritten: also if the pass fails.
schedule::Outcome execute(Replica& replica, const schedule::Plan& plan, Unwritten& unwritten) {
  try {
    schedule::Outcome outcome = replica.execute(plan, [&] { unwritten.write(); });
    unwritten.write();
    return outcome;
  } catch (...) {
    unwritten.write();
    throw;
  }
}

double flops_of(const report::Recorder& recorder) {
  return recorder.totals().flops;
}

}  // namespace

execute::ReplicaTotals run_replica(comm::Communicator& ranks, Replica& replica,
                                   report::Recorder& recorder, PlanSource* plans,
                                   const std::function<bool()>& stop_requested,
                                   const RunClock& clock) {
  constexpr int root = 0;
  constexpr int64_t no_pass = -1;
  execute::ReplicaTotals totals;
  execute::PassCounter counter;
  Unwritten unwritten(plans, totals);
  bool any_stop_requested = false;
  for (;;) {
    schedule::Plan plan;
    if (plans != nullptr)
      plan = make_plan(*plans, plans->observer.stopping(any_stop_requested || stop_requested()),
                       clock.seconds(), unwritten, totals);
    std::vector<std::byte> bytes;
    if (plans != nullptr) bytes = to_bytes(plan);
    {
      const ScopedSpan span(recorder, "wait_for_plan", Kind::idle);
      ranks.broadcast(bytes, root);
    }
    if (plans == nullptr) plan = from_bytes<schedule::Plan>(bytes);
    if (plan.last != 0) {
      replica.finish_copies();
      return totals;
    }
    if (plan.wait_s > 0) {
      const ScopedSpan span(recorder, "wait_for_arrivals", Kind::idle);
      wait(plan.wait_s, clock, ranks);
      any_stop_requested = ranks.all_reduce_max(stop_requested() ? 1 : 0) > 0;
      if (plans != nullptr) plans->observer.ended(totals);
      continue;
    }

    recorder.set_pass(plan.number);  // set before the phase's span, which belongs to the pass
    if (plans != nullptr) plans->observer.begins(plan, totals);
    const double begin = clock.seconds();
    const double flops = flops_of(recorder);
    if (plans != nullptr && !plan.saves()) {
      if (plan.restore.empty())
        plans->observer.planned(plan, plans->scheduler.expected_seconds(plan));
      note_rings(plans->scheduler.chunk_rings(), recorder);
      note_yields(plans->scheduler, plan.number, recorder);
    }
    std::vector<std::vector<std::byte>> gathered;
    {
      const ScopedSpan span(recorder, execute::phase_name(plan), Kind::phase);
      const PassReply answer{stop_requested(), plan.number, 0, execute(replica, plan, unwritten)};
      const ScopedSpan waiting(recorder, "gather_outcomes", Kind::comm);
      gathered = ranks.gather(to_bytes(answer), root);
    }
    recorder.set_pass(no_pass);
    if (plans == nullptr) continue;
    std::vector<schedule::Outcome> outcomes;
    for (const auto& part : gathered) {
      auto answer = from_bytes<PassReply>(part);
      any_stop_requested = any_stop_requested || answer.stop_requested != 0;
      outcomes.push_back(std::move(answer.outcome));
    }
    double park_s = 0;
    for (const schedule::Outcome& outcome : outcomes) park_s = std::max(park_s, outcome.park_s);
    totals.park_s += park_s;
    const double end = clock.seconds();
    if (plan.saves() || !plan.restore.empty()) plans->saves->commit(plan, outcomes, totals);
    if (plan.saves()) continue;
    std::vector<int64_t> answered = plans->scheduler.commit(plan, outcomes, end);
    if (outcomes.front().kv.done == 0) plan.restore.clear();  // reading failed, so it was computed
    // The shards are balanced, so all ranks compute about as much as this one.
    counter.count(plan,
                  {.begin_s = begin,
                   .end_s = end,
                   .flops = (flops_of(recorder) - flops) * ranks.size(),
                   .answered = std::move(answered)},
                  totals);
    unwritten.add(plans->scheduler.take_finished());
    if (!replica.computes_beside_host()) unwritten.write();
    plans->observer.ended(totals);
  }
}

}  // namespace pecia::execute
