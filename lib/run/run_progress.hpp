// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How far the run is: every replica adds what it has done, the run's first rank shows the sum.

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "lib/batch/turn_counts.hpp"
#include "lib/execute/replica_loop.hpp"
#include "lib/report/progress.hpp"

namespace pecia::run {

/// The replica of this rank.
struct ReplicaPart {
  int replicas = 1;    ///< of the run
  int replica = 0;     ///< which of them
  int ranks = 1;       ///< of a replica
  int64_t layers = 1;  ///< of the model
};

class RunProgress {
 public:
  /// Collective over `world`, and so is destroying it. The recorder counts this rank's work and
  /// knows the layer that it is at.
  RunProgress(comm::Communicator& world, const ReplicaPart& part, const report::Recorder& recorder);

  /// On the rank that shows it, before the first pass: what there is to do, what of it `results`
  /// has, what earlier starts did, and this one as it begins.
  void show(const job::Job& job, const batch::Inputs& inputs, const io::ResultsFile& results,
            std::vector<report::StartRecord> earlier, const report::StartRecord& own);

  /// On the rank that plans for a replica, before every pass; `totals` are all that the replica has
  /// done.
  void begin_pass(const schedule::Plan& plan, const batch::ReplicaTotals& totals);

  /// There, within passes, as often as one likes, and while other replicas still work: what the
  /// pass has read, layer by layer, counts too. Telling the others may cost messages, so calls that
  /// follow closely do nothing.
  void look();

  /// There, after every pass; calls that follow closely are left for the next one.
  void update(const batch::ReplicaTotals& totals);

  /// The same after the last pass, whenever it was.
  void add(const batch::ReplicaTotals& totals);

  /// On the rank that shows it, when all replicas have finished; `left` is how the results stand.
  void finish(const batch::TurnCounts& left);

 private:
  /// What replicas tell: counts, which are added up, and the nanoseconds of each one's phases.
  enum Count { done, failed, prompt_tokens, output_tokens, decode_tokens, work, num_counts };
  enum Phase { prefill_ns, decode_ns, num_phases };
  struct Told {
    std::array<int64_t, num_counts> counts{};
    std::array<int64_t, num_phases> phases{};
  };

  struct Pass {
    std::chrono::steady_clock::time_point begin;
    Told before;
    int64_t prompt_tokens = 0;
    double prefill_share = 0;  ///< of its new tokens
    double flops = 0;          ///< that the recorder had counted before
    int64_t layers_done = 0;
  };

  static Told told_of(const batch::ReplicaTotals& totals);
  Told told_within(Pass& pass) const;
  void tell(const Told& told);
  bool is_time();
  int64_t longest(Phase phase) const;
  report::ProgressState state() const;

  ReplicaPart part_;
  const report::Recorder& recorder_;
  std::unique_ptr<comm::SharedCounters> counters_;  ///< counts, then the phases of each replica
  Told told_;
  std::optional<Pass> pass_;
  bool replays_ = false;
  int64_t arrived_ = 0;
  std::chrono::steady_clock::time_point last_told_;
  report::ProgressTotals totals_;
  report::ProgressState start_;
  std::optional<report::Progress> shown_;
};

}  // namespace pecia::run
