// SPDX-License-Identifier: Apache-2.0
#include "lib/execute/replica_loop.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pecia::execute {
namespace {

using report::Kind;
using report::ScopedSpan;

/// Notes in the trace why keys or queries travel for the pass's prompts.
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
                  decision.ring == parallel::AttentionExchange::pass_kv ? "pass_kv" : "pass_q");
  }
}

/// Turns that have ended and are not on disk yet. On a GPU they are written while it computes the
/// next pass.
class Unwritten {
 public:
  Unwritten(PassMaker* pass_maker, batch::ReplicaTotals& totals)
      : pass_maker_(pass_maker), totals_(totals) {}

  void add(std::vector<schedule::Finished> finished) {
    std::ranges::move(finished, std::back_inserter(finished_));
  }
  void write() {
    if (!finished_.empty()) record(*pass_maker_, std::exchange(finished_, {}), totals_);
  }

 private:
  PassMaker* pass_maker_;
  batch::ReplicaTotals& totals_;
  std::vector<schedule::Finished> finished_;
};

/// Makes the next pass, a wait, a plan that keeps keys and values, or the last plan. Turns that end
/// without a pass are recorded. If no pass is next, `unwritten` is written first.
schedule::Plan make_plan(PassMaker& pass_maker, bool stopping, double now, Unwritten& unwritten,
                         batch::ReplicaTotals& totals) {
  constexpr double longest_wait_s = 0.1;  // then signals and limits are checked again
  schedule::Scheduler& scheduler = pass_maker.scheduler;
  stopping = stopping || (pass_maker.saves != nullptr && pass_maker.saves->draining());
  std::optional<schedule::Plan> plan = next_pass(pass_maker, stopping, now, totals);
  if (!plan) unwritten.write();
  const auto arrival = pass_maker.source.next_arrival();
  const bool ends = !plan && (stopping || scheduler.out_of_time() || !arrival);
  if (ends && pass_maker.saves != nullptr) {
    if (!pass_maker.saves->draining()) record(pass_maker, scheduler.partial(), totals);
    plan = pass_maker.saves->next(scheduler, now, totals);
  }
  if (plan) return std::move(*plan);
  schedule::Plan none;
  none.last = ends;
  const bool recorded = pass_maker.saves != nullptr && pass_maker.saves->draining();
  if (none.last != 0 && !recorded) record(pass_maker, scheduler.partial(), totals);
  if (none.last == 0) none.wait_s = std::min(*arrival - now, longest_wait_s);
  return none;
}

/// Waits in naps, so that ranks that need something of this one meanwhile are soon served.
void wait(double seconds, const RunClock& clock, comm::Communicator& replica) {
  constexpr double nap_s = 1e-3;
  const double end = clock.seconds() + seconds;
  for (double left = seconds; left > 0; left = end - clock.seconds()) {
    clock.sleep_s(std::min(left, nap_s));
    replica.progress();
  }
}

/// Executes the plan, and writes what is unwritten: also if the pass fails.
schedule::Outcome execute(Worker& worker, const schedule::Plan& plan, Unwritten& unwritten) {
  try {
    schedule::Outcome outcome = worker.execute(plan, [&] { unwritten.write(); });
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

batch::ReplicaTotals run_replica(comm::Communicator& replica, Worker& worker,
                                 report::Recorder& recorder, PassMaker* pass_maker,
                                 const std::function<bool()>& told, const RunClock& clock) {
  constexpr int root = 0;
  constexpr int64_t no_pass = -1;
  batch::ReplicaTotals totals;
  batch::PassCounter counter;
  Unwritten unwritten(pass_maker, totals);
  bool any_told = false;
  for (;;) {
    schedule::Plan plan;
    if (pass_maker != nullptr)
      plan = make_plan(*pass_maker, pass_maker->stopping(any_told || told()), clock.seconds(),
                       unwritten, totals);
    std::vector<std::byte> bytes;
    if (pass_maker != nullptr) bytes = to_bytes(plan);
    {
      const ScopedSpan span(recorder, "wait_for_plan", Kind::idle);
      replica.broadcast(bytes, root);
    }
    if (pass_maker == nullptr) plan = from_bytes<schedule::Plan>(bytes);
    if (plan.last != 0) return totals;
    if (plan.wait_s > 0) {
      const ScopedSpan span(recorder, "wait_for_arrivals", Kind::idle);
      wait(plan.wait_s, clock, replica);
      any_told = replica.all_reduce_max(told() ? 1 : 0) > 0;
      if (pass_maker != nullptr) pass_maker->on_pass(totals);
      continue;
    }

    recorder.set_pass(plan.number);  // set before the phase's span, which belongs to the pass
    if (pass_maker != nullptr && pass_maker->on_begin) pass_maker->on_begin(plan, totals);
    const double begin = clock.seconds();
    const double flops = flops_of(recorder);
    if (pass_maker != nullptr && !plan.saves()) {
      if (pass_maker->on_plan && plan.restore.empty())
        pass_maker->on_plan(plan, pass_maker->scheduler.expected_seconds(plan));
      note_rings(pass_maker->scheduler.chunk_rings(), recorder);
    }
    std::vector<std::vector<std::byte>> gathered;
    {
      const ScopedSpan span(recorder, batch::phase_name(plan), Kind::phase);
      const Answer answer{told(), plan.number, 0, execute(worker, plan, unwritten)};
      const ScopedSpan waiting(recorder, "gather_outcomes", Kind::comm);
      gathered = replica.gather(to_bytes(answer), root);
    }
    recorder.set_pass(no_pass);
    if (pass_maker == nullptr) continue;
    std::vector<schedule::Outcome> outcomes;
    for (const auto& part : gathered) {
      auto answer = from_bytes<Answer>(part);
      any_told = any_told || answer.told != 0;
      outcomes.push_back(std::move(answer.outcome));
    }
    const double end = clock.seconds();
    if (plan.saves() || !plan.restore.empty()) pass_maker->saves->commit(plan, outcomes, totals);
    if (plan.saves()) continue;
    pass_maker->scheduler.commit(plan, outcomes, end);
    if (outcomes.front().kv.done == 0) plan.restore.clear();  // reading failed, so it was computed
    // The shards are balanced, so all ranks compute about as much as this one.
    counter.count(plan, {begin, end, (flops_of(recorder) - flops) * replica.size()}, totals);
    unwritten.add(pass_maker->scheduler.take_finished());
    if (!worker.computes_beside_host()) unwritten.write();
    pass_maker->on_pass(totals);
  }
}

}  // namespace pecia::execute
