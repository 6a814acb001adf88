// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a run makes its passes from: the source of requests, the decision to stop, the progress,
/// and the scheduler on the planning rank of each replica.

#include <memory>
#include <optional>

#include "lib/engine/execute/replica.hpp"
#include "lib/engine/execute/replica_loop.hpp"
#include "lib/run/gather_results.hpp"
#include "lib/run/open_results.hpp"
#include "lib/run/parking.hpp"
#include "lib/run/run_progress.hpp"
#include "lib/run/run_summary.hpp"
#include "lib/run/starts.hpp"
#include "lib/run/stop.hpp"

namespace pecia::run {

/// When the run began.
struct RunBegin {
  Stop::Clock::time_point at = Stop::Clock::now();
  double unix_s = report::unix_time();

  double seconds_since() const {
    return std::chrono::duration<double>(Stop::Clock::now() - at).count();
  }
};

/// The results of the stages before.
struct PlanningInputs {
  const Setup& setup;
  const LoadedWeights& weights;
  RunInputs& inputs;
  RunResults& results;
  const measure::Measured& measured;
  const RunFacts& facts;
  const Start& start;
  const Parking& parking;
  double product_flops;  ///< FLOP/s of all ranks
};

class Planning : private execute::RunObserver {
 public:
  /// Construction and destruction are collective over all ranks; construction fails on all
  /// together. All references outlive this object, but `from` itself need not.
  Planning(const PlanningInputs& from, const RunBegin& begin, const DrainSignals& signals,
           execute::Replica& replica);
  Planning(const Planning&) = delete;
  Planning& operator=(const Planning&) = delete;

  /// Null on ranks that do not plan.
  execute::PlanSource* plans() { return plans_ ? &*plans_ : nullptr; }
  Stop& stop() { return stop_; }
  RunProgress& progress() { return progress_; }
  /// Call it on every rank as often as you like while it computes. It shows progress, and it lets
  /// other replicas use the shared counters: between hosts that only TCP connects, their calls wait
  /// for a call on the rank that holds these.
  void poll();
  const schedule::Scheduler& scheduler() const { return *scheduler_; }  ///< on planning ranks

  /// Call it after the replica has finished: adds its totals, then waits for all replicas. On the
  /// root rank the results are then whole, and in their place (files/disk/displaced.hpp).
  void finish_with(const execute::ReplicaTotals& totals);
  /// Why the run ends; none if its work is done. Collective; the same on every rank.
  StopReason agreed_reason() const;

 private:
  bool holds_counters() const { return setup_.world().rank() == 0; }
  void plan(const PlanningInputs& from, const RunBegin& begin, std::optional<double> end_s);

  std::string mode(const std::string& ring) override;
  bool stopping(bool stop_requested) override { return stop_.agreed(stop_requested); }
  void planned(const schedule::Plan& plan, std::optional<double> seconds) override;
  void begins(const schedule::Plan& plan, const execute::ReplicaTotals& totals) override;
  void ended(const execute::ReplicaTotals& totals) override;

  const Setup& setup_;
  std::unique_ptr<comm::SharedCounter> taken_, stopped_, finished_;
  std::unique_ptr<comm::SharedCounters> claims_;  ///< null unless arrivals are replayed
  Stop stop_;
  RunProgress progress_;
  std::unique_ptr<execute::Source> source_;
  std::optional<schedule::Scheduler> scheduler_;
  std::optional<execute::KvSaves> saves_;
  std::optional<io::JournalWriter> journal_;  ///< on planning ranks, if there are several replicas
  std::optional<GatherResults> gathering_;    ///< on the root rank then
  std::optional<execute::PlanSource> plans_;
};

}  // namespace pecia::run
