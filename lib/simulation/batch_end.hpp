// SPDX-License-Identifier: Apache-2.0
#pragma once
/// When a batch ends: the real scheduler on the clock of simulated passes; and the times that no
/// schedule of it comes before.

#include "lib/simulation/batch.hpp"
#include "lib/simulation/replica_cost_model.hpp"

namespace pecia::simulation {

/// Most ranks for which all passes that a choice of a layout needs are replayed.
inline constexpr int all_played_ranks = 128;

/// The lengths of the passes that a replica of these resources has with the batch. `resources`: all
/// but threads.
PassLengths lengths_of(const Batch& batch, const resources::Resources& resources);

struct BatchEnd {
  /// Before passes can end, memory has to be touched for so long.
  void add_first_touch(double seconds);

  double end_s = 0;  ///< every answer has its full length
  /// No schedule ends before soonest_s: answers stop at their first token, unless the job ignores the
  /// tokens that end them, and passes are as much faster as the fit of their times is off. At
  /// latest_s it ends if passes are as much slower.
  double soonest_s = 0, latest_s = 0;
  double first_touch_s = 0;  ///< in end_s and its range: memory is written for the first time
  double mean_ttft_s = 0;    ///< from a turn's arrival, or its request's start, to its first token
  double busy = 0;           ///< share of the instances' time in which they are in a pass
  /// All passes of all replicas. A pass of a team counts as long as its share of the instances.
  PassCost prefill, decode;
  int64_t refused = 0;     ///< turns that never fit
  batch::Sharing sharing;  ///< what joined requests are spared
};

/// Plays the batch in these resources, all but threads. `parking_s`: as SchedulerLimits has it.
BatchEnd play(const Batch& batch, const job::Job& job, const model::ModelConfig& config,
              const resources::Resources& resources, const ReplicaCostModel& times,
              double parking_s = 0);

/// Seconds before which no schedule of the batch ends, by these times: the largest of
///
///   - the longest request alone: its passes follow each other, and in each of them some instance has
///     a whole row;
///   - all work, dealt evenly to the replicas, in passes that are as full as they may be;
///   - for each k, the k smallest of the (k − 1) · dp + 1 largest requests: one replica has k of them.
///
/// Without kv_tokens any number of sequences has room.
double end_lower_bound_s(const Batch& batch, const resources::Resources& resources,
                         const ReplicaCostModel& times);

/// Seconds that requests wait for the first token of their first turn, in the mean, if each has all
/// instances of a replica to itself as soon as it arrives.
double first_token_lower_bound_s(const Batch& batch, const resources::Resources& resources,
                                 const ReplicaCostModel& times);

}  // namespace pecia::simulation
