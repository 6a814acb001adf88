// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How far the run is. Every replica adds what it has done, and the run's first rank shows the sum.

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "lib/base/report/progress.hpp"
#include "lib/engine/execute/replica_loop.hpp"
#include "lib/work/batch/turn_counts.hpp"

namespace pecia::run {

/// The place of this rank's replica in the run.
struct ReplicaPart {
  int replicas = 1;    ///< replicas of the run
  int replica = 0;     ///< index of this rank's replica
  int ranks = 1;       ///< ranks of a replica
  int64_t layers = 1;  ///< layers of the model
};

class RunProgress {
 public:
  /// Construction and destruction are collective over `world`. The recorder counts this rank's work
  /// and knows the current layer.
  RunProgress(comm::Communicator& world, const ReplicaPart& part, const report::Recorder& recorder);

  /// Call it on the rank that shows progress, before the first pass. It is told the work there is,
  /// the part that `results` has, the earlier starts, and this start as it begins.
  void show(const job::Job& job, const batch::Inputs& inputs, const io::ResultsFile& results,
            std::vector<report::StartRecord> earlier, const report::StartRecord& own);

  /// Call it on the rank that plans for a replica, before every pass. `totals` count all that the
  /// replica has done.
  void begin_pass(const schedule::Plan& plan, const execute::ReplicaTotals& totals);

  /// Call it on the planning rank as often as you like, within passes and while other replicas
  /// still work. It also counts what the pass has read, layer by layer. Telling the others may cost
  /// messages, so a call soon after another does nothing.
  void poll();

  /// Call it on the planning rank after every pass. A call soon after another leaves its news to
  /// the next one.
  void update(const execute::ReplicaTotals& totals);

  /// Does the same after the last pass, without a limit on how often.
  void add(const execute::ReplicaTotals& totals);

  /// Call it on the rank that shows progress, when all replicas have finished. `left` counts the
  /// turns in the results.
  void finish(const batch::TurnCounts& left);

 private:
  /// What replicas tell: counts, which are summed, and nanoseconds of phases for each replica.
  enum Count {
    done,
    failed,
    prompt_tokens,
    output_tokens,
    decode_tokens,
    work,
    restored_tokens,
    restored_work,
    num_counts
  };
  enum Phase { prefill_ns, decode_ns, num_phases };
  struct Told {
    std::array<int64_t, num_counts> counts{};
    std::array<int64_t, num_phases> phases{};
  };

  struct PassUnderWay {
    std::chrono::steady_clock::time_point begin;
    Told before;
    int64_t prompt_tokens = 0;
    double prefill_share = 0;  ///< share of prompt tokens in its new tokens
    double flops = 0;          ///< figure of the recorder at its begin
    int64_t layers_done = 0;
  };

  static Told told_of(const execute::ReplicaTotals& totals);
  Told told_within(PassUnderWay& pass) const;
  void tell(const Told& told);
  bool is_time() const;
  void poll_now(const Told& told);
  int64_t longest(Phase phase) const;
  report::ProgressState state() const;

  ReplicaPart part_;
  const report::Recorder& recorder_;
  std::unique_ptr<comm::SharedCounters> counters_;  ///< counts, then the phases of each replica
  Told told_;
  std::optional<PassUnderWay> pass_;
  bool replays_ = false;
  int64_t arrived_ = 0;
  std::chrono::steady_clock::time_point next_look_;
  report::ProgressTotals totals_;
  report::ProgressState start_;
  std::optional<report::Progress> shown_;
};

}  // namespace pecia::run
