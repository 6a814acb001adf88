// SPDX-License-Identifier: Apache-2.0
#pragma once
/// When a run has to drain before its work is done: a signal to any rank, or its wall time.

#include <chrono>
#include <optional>

#include "lib/comm/communicator.hpp"
#include "lib/job/job.hpp"
#include "lib/run/signals.hpp"

namespace pecia::run {

/// Seconds from the run's start until it has to drain: limits.wall_time, or else the end of the
/// Slurm job, less limits.grace. Absent: no limit. InputError when the grace leaves nothing of the
/// wall time.
std::optional<double> seconds_to_drain(const job::Job::Limits& limits);

/// In order of weight: of the ranks' reasons the greatest is the run's.
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

  /// Whether all replicas are to stop. Call it on the planning rank between passes; after a replica
  /// has finished, on all its ranks. `told`: a rank of the replica has a reason. Tells the other
  /// replicas, and learns of theirs within a second.
  bool agreed(bool told);

 private:
  const DrainSignals& signals_;
  std::optional<Clock::time_point> drain_at_;
  comm::SharedCounter& stopped_replicas_;
  Clock::time_point next_look_;
  bool stopping_ = false;
};

}  // namespace pecia::run
