// SPDX-License-Identifier: Apache-2.0
#pragma once
/// When a run has to drain before its work is done: a signal to any rank, or its wall time.

#include <chrono>
#include <optional>

#include "lib/ranks/comm/communicator.hpp"
#include "lib/run/signals.hpp"
#include "lib/work/job/job.hpp"

namespace pecia::run {

/// Seconds from the run's start until it has to drain: limits.wall_time, or else the end of the
/// Slurm job, minus limits.grace. Absent: no limit. Throws InputError when the grace leaves nothing
/// of the wall time.
std::optional<double> seconds_to_drain(const job::Job::Limits& limits);

/// Ordered by weight: the run's reason is the greatest of its ranks'.
enum class StopReason { none, wall_time, signal };

/// One rank's part in the decision to stop.
class Stop {
 public:
  using Clock = std::chrono::steady_clock;

  /// `stopped_replicas` is shared by all ranks of the run; it and `signals` outlive this object.
  Stop(const DrainSignals& signals, std::optional<Clock::time_point> drain_at,
       comm::SharedCounter& stopped_replicas);

  /// Why this rank wants to stop.
  StopReason reason() const;

  /// Whether all replicas have to stop. Call it on the planning rank between passes; after a
  /// replica has finished, call it on all its ranks. `stop_requested`: a rank of the replica has a
  /// reason to stop. It tells the other replicas, and learns from them within a second.
  bool agreed(bool stop_requested);

 private:
  const DrainSignals& signals_;
  std::optional<Clock::time_point> drain_at_;
  comm::SharedCounter& stopped_replicas_;
  Clock::time_point next_look_;
  bool stopping_ = false;
};

}  // namespace pecia::run
