// SPDX-License-Identifier: Apache-2.0
#pragma once
/// First step of elastic sequence parallelism: which waiting requests begin.
/// Source: LoongServe (dispatching).

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lib/schedule/elastic_request.hpp"
#include "lib/schedule/team_times.hpp"

namespace pecia::schedule {

struct DispatchState {
  int64_t free_slots = 0;  ///< on all instances together, less what running answers may still take
  int idle_instances = 0;
  int decoding_instances = 0;  ///< instances whose decodes could be delayed
  int64_t decoding_rows = 0;   ///< answers that these generate
  /// Expected seconds until an instance would be idle if no decode were delayed.
  double wait_s = 0;
  int64_t rows_per_instance = 1;  ///< most new tokens of an instance in a pass
};

enum class DispatchStop {
  all_taken,      ///< nothing stopped it
  no_instance,    ///< none is idle and none decodes
  slots,          ///< the next request has no room
  preemption,     ///< the next request would delay decodes for longer than it would wait
  compute_bound,  ///< the next request would not raise the batch's speed
};

struct Dispatch {
  size_t count = 0;  ///< the first requests, which begin
  DispatchStop stop = DispatchStop::all_taken;
  double seconds = 0;  ///< prediction for the batch
  /// The rejected batch, with the next request too. 0 where no request or no instance was left.
  double rejected_s = 0;
  double marginal_s = 0;  ///< rejected_s − seconds
  double limit_s = 0;     ///< what marginal_s had to stay below; 0 where slots stopped it
};

/// Takes requests from the front, in the order given, and stops at the first that fails one of
/// three conditions. A request never overtakes another.
///
/// - Slots: its prompt and answer fit in the slots that are free on all instances together. So no
///   sequence is ever evicted and computed again.
/// - Preemption, only without an idle instance: wait_s, by which it begins earlier, exceeds
///   decoding_rows times its marginal seconds, by which all answers under way are delayed.
/// - Compute-bound, not for the first request: its marginal seconds are less than 95 % of its share
///   of the seconds with it, where shares go by rows and pairs. A request shares the fixed time of a
///   pass that has room, so its margin is small. When passes are full, or when the fixed time is
///   below 5 % of the whole, its margin equals its share and the batch gains nothing from it.
///
/// Seconds of a batch are those of I instances that read it side by side, I being the idle ones, or
/// the decoding ones if none is idle. They follow the rates of one instance, without messages:
///
///     pass_s · ⌈tokens / (I · rows_per_instance)⌉ + (row_s · tokens + pair_s · pairs) / I
///
/// Errors: throws InvalidArgument if a number is negative, a request has no token to read or
/// rows_per_instance is 0.
Dispatch dispatch(const TeamTimes& times, const std::vector<ElasticRequest>& waiting,
                  const DispatchState& state);

}  // namespace pecia::schedule
