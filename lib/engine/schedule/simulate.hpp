// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Plays a batch through the scheduler without computing anything. Each pass lasts as long as the
/// times of teams say, so a batch of hours is over in milliseconds. It tells which of several grids
/// would end a batch first, and what the scheduler's decisions lead to on machines that are not
/// here.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lib/engine/schedule/demand_counts.hpp"
#include "lib/engine/schedule/plan.hpp"
#include "lib/engine/schedule/scheduler_limits.hpp"
#include "lib/engine/schedule/token_gaps.hpp"
#include "lib/work/batch/request.hpp"

namespace pecia::schedule {

struct SimulatedTurn {
  int64_t prompt_tokens = 1, answer_tokens = 0;
  int64_t max_new_tokens = 0;                      ///< at least answer_tokens; 0: these
  bool goes_on = false;                            ///< Turn::goes_on
  int64_t shared_tokens = 0, stem_end_tokens = 0;  ///< as in Turn
};

struct SimulatedRequest {
  io::Followup followup = io::Followup::chain;
  std::vector<SimulatedTurn> turns;
  std::optional<double> arrival_s = {};  ///< absent: it is there from the start

  /// Several requests that begin alike: a fork whose first turn is their common beginning.
  bool is_joined() const { return turns.size() > 1 && turns[1].shared_tokens > 0; }
};

struct Simulation {
  double seconds = 0;  ///< until the last answer has ended
  int64_t passes = 0;
  /// [degree − 1] Work of all passes of teams of this degree, as busiest_work counts it.
  std::vector<PassWork> prompts, answers;
  /// Seconds in which instances were in a pass, over a replica's instances; all replicas together.
  double busy_s = 0;
  /// Of the passes of the busiest replica: with rows of prompts, and the others.
  double prefill_s = 0, decode_s = 0;
  int64_t answered = 0, refused = 0;  ///< turns
  DemandCounts demand;                ///< of all replicas
  batch::Sharing sharing;             ///< what joined requests were spared
  /// By request: its first turn's, of joined ones that of the first; NaN where that was not answered.
  std::vector<double> ttft_s;
  std::vector<double> latency_s;  ///< by request: until its first turn's answer has ended
  /// By request: the longest time between two tokens of one of its answers; 0 where none has two.
  std::vector<double> longest_gap_s;
  TokenGaps gaps;         ///< between two tokens of an answer, of all answers
  int64_t gaps_kept = 0;  ///< of these no longer than SchedulerLimits::tbt_s; 0 without it
};

/// A call of Scheduler::next or of Scheduler::commit.
enum class Call { next, commit };
/// Does `work`, which is this call. A caller can time it.
using Around = std::function<void(Call call, const std::function<void()>& work)>;

/// Seconds of a pass.
using PassSeconds = std::function<double(const Plan& plan)>;

/// Plays the requests, in their order, on replicas with a scheduler each. A request that is there
/// goes to a replica that has room for it, as in a run. Every answer has the length that its turn
/// says, whatever the limits say of stop tokens, and nothing asks for log-probabilities. Keys that
/// are parked or come back take SchedulerLimits::parking_s for each token.
///
/// Throws InvalidArgument where the limits have a time limit, or a request has no turn. A request
/// that comes later in the list than one that arrives after it waits for that one.
Simulation simulate(const SchedulerLimits& limits, const PassSeconds& seconds,
                    const std::vector<SimulatedRequest>& requests, int replicas = 1,
                    const Around& around = {});
/// The same where passes take what `times` say, which are of teams of up to limits.ring_size
/// instances.
Simulation simulate(const SchedulerLimits& limits, const TeamTimes& times,
                    const std::vector<SimulatedRequest>& requests, int replicas = 1,
                    const Around& around = {});

}  // namespace pecia::schedule
