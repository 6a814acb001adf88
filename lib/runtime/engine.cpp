#include "lib/runtime/engine.hpp"

#include <chrono>

namespace pecia::runtime {
namespace {

using report::Kind;
using report::ScopedSpan;

class Clock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void record(Planner& planner, std::vector<Finished> finished, Tally& tally) {
  std::vector<io::TurnUpdate> updates;
  for (Finished& turn : finished) {
    turn.result.mode = planner.mode(turn.result.mode);
    turn.result.replica = planner.replica;
    (turn.state == io::TurnState::failed    ? tally.failed
     : turn.state == io::TurnState::partial ? tally.partial
                                            : tally.done) += 1;
    if (turn.state == io::TurnState::done) {
      if (!turn.result.tokens.empty()) tally.ttft_s.push_back(turn.result.ttft_s);
      tally.cached_tokens += turn.result.cached_tokens;
    }
    updates.push_back({turn.row, turn.result, turn.state});
  }
  if (!updates.empty()) planner.results.write_all(updates);
}

/// Into the trace: why the pass's prompts let keys or queries travel.
void note_rings(const std::vector<ChunkRing>& rings, report::Recorder& recorder) {
  for (const auto& [sequence, decision] : rings) {
    const parallel::RingInputs& in = decision.in;
    recorder.note("ring_rule",
                  {{"sequence", static_cast<double>(sequence)},
                   {"new_tokens", in.load.new_tokens},
                   {"cached_tokens", in.load.cached_tokens()},
                   {"ranks", in.ranks},
                   {"flops", in.rates.flops},
                   {"bandwidth", in.rates.bandwidth},
                   {"hiding_tokens", decision.hiding_tokens},
                   {"miss_rate", in.load.miss_rate()},
                   {"miss_rate_limit", decision.miss_rate_limit}},
                  decision.ring == parallel::Ring::pass_kv ? "pass_kv" : "pass_q");
  }
}

/// The next pass, or the last plan. Turns that end without one are recorded.
Plan make_plan(Planner& planner, bool stopping, double now, Tally& tally) {
  Scheduler& scheduler = planner.scheduler;
  std::optional<Plan> plan;
  bool exhausted = stopping;
  do {
    while (!exhausted && scheduler.wants_more()) {
      auto request = planner.source.take();
      exhausted = !request;
      if (request) scheduler.add(std::move(*request), 0);
    }
    if (!stopping) plan = scheduler.next(now);
    record(planner, scheduler.take_finished(), tally);
  } while (!plan && !exhausted);
  if (stopping) record(planner, scheduler.partial(), tally);
  if (plan) return std::move(*plan);
  Plan last;
  last.last = 1;
  return last;
}

/// What a rank says after a pass.
struct Answer {
  uint8_t told = 0;  ///< to stop
  Outcome outcome;

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

Tally run_replica(comm::Communicator& replica, Worker& worker, report::Recorder& recorder,
                  Planner* planner, const std::function<bool()>& told) {
  constexpr int root = 0;
  constexpr int64_t no_pass = -1;
  const Clock clock;
  Tally tally;
  PassCounter counter;
  bool any_told = false;
  for (;;) {
    Plan plan;
    if (planner != nullptr)
      plan = make_plan(*planner, planner->stopping(any_told || told()), clock.seconds(), tally);
    std::vector<std::byte> bytes;
    if (planner != nullptr) bytes = to_bytes(plan);
    {
      const ScopedSpan span(recorder, "wait_for_plan", Kind::idle);
      replica.broadcast(bytes, root);
    }
    if (planner == nullptr) plan = from_bytes<Plan>(bytes);
    if (plan.last != 0) return tally;

    recorder.set_pass(plan.number);  // before the phase's span, which belongs to it
    const double begin = clock.seconds();
    const double flops = flops_of(recorder);
    if (planner != nullptr) note_rings(planner->scheduler.chunk_rings(), recorder);
    std::vector<std::vector<std::byte>> gathered;
    {
      const ScopedSpan span(recorder, phase_name(plan), Kind::phase);
      const Answer answer{told(), worker.execute(plan)};
      const ScopedSpan waiting(recorder, "gather_outcomes", Kind::comm);
      gathered = replica.gather(to_bytes(answer), root);
    }
    recorder.set_pass(no_pass);
    if (planner == nullptr) continue;
    std::vector<Outcome> outcomes;
    for (const auto& part : gathered) {
      auto answer = from_bytes<Answer>(part);
      any_told = any_told || answer.told != 0;
      outcomes.push_back(std::move(answer.outcome));
    }
    const double end = clock.seconds();
    planner->scheduler.commit(plan, outcomes, end);
    // Load-balanced shards: what one rank computes, they all do.
    counter.count(plan, {begin, end, (flops_of(recorder) - flops) * replica.size()}, tally);
    record(*planner, planner->scheduler.take_finished(), tally);
    planner->on_pass(tally);
  }
}

}  // namespace pecia::runtime
