// SPDX-License-Identifier: Apache-2.0
#pragma once
/// When a batch ends: the real scheduler on the clock of foreseen passes.

#include <vector>

#include "lib/foresight/replica_times.hpp"
#include "lib/schedule/simulate.hpp"

namespace pecia::foresight {

/// Up to so many ranks all passes are played that a choice of a layout needs.
inline constexpr int all_played_ranks = 128;

/// A batch in the order in which a run takes its requests, at least one. Requests that begin alike
/// may be joined to one (SimulatedRequest::is_joined).
class Batch {
 public:
  /// `config`: its FLOPs say which requests are the longest.
  Batch(std::vector<schedule::SimulatedRequest> requests, const model::ModelConfig& config);

  const std::vector<schedule::SimulatedRequest>& requests() const { return requests_; }
  /// Counts joined requests one by one, and what they begin with once.
  const resources::BatchWork& work() const { return work_; }
  /// Tokens of the longest request's prompts, all turns that see each other.
  int64_t longest_prompt() const { return longest_prompt_; }
  /// Tokens of the longest sequence, with its answers.
  int64_t longest_sequence() const { return longest_sequence_; }
  /// Tokens of a turn's prompt, on average.
  int64_t mean_prompt() const { return mean_prompt_; }
  /// Tokens before an answer's token, on average.
  int64_t mean_context() const { return mean_context_; }
  /// Tokens that the requests have in the cache at most, all turns together, in descending order. The
  /// first of joined requests has those that all of them begin with.
  const std::vector<int64_t>& cached() const { return cached_; }
  /// The batch as it would be if every answer ended at its first token.
  std::vector<schedule::SimulatedRequest> at_once() const;

 private:
  std::vector<schedule::SimulatedRequest> requests_;
  resources::BatchWork work_;
  int64_t longest_prompt_ = 1, longest_sequence_ = 1, mean_prompt_ = 1, mean_context_ = 1;
  std::vector<int64_t> cached_;
};

/// The lengths of the passes that a replica of these resources has with the batch. `resources`: all
/// but threads.
PassSpan span_of(const Batch& batch, const resources::Resources& resources);

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
  PassFigures prefill, decode;
  int64_t refused = 0;        ///< turns that never fit
  schedule::Sharing sharing;  ///< what joined requests are spared
};

/// Plays the batch in these resources, all but threads.
BatchEnd play(const Batch& batch, const job::Job& job, const model::ModelConfig& config,
              const resources::Resources& resources, const ReplicaTimes& times);

}  // namespace pecia::foresight
