// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The policy of time: what begins and what passes may take before this start of the run has to end.
///
/// With an end, a turn begins only if it and all turns under way are expected to be answered by
/// then. A prompt's chunk is cut to what the remaining time allows, and a prompt that turns out too
/// slow gives its place to others. Where time is short for all, answers come before prompts. There
/// are two exceptions: begins_anyway, and an assumed end, which is forgotten once it is over.
///
/// Every function answers for `now` from the state and its times. All times are seconds. Without an
/// end everything is in time.

#include <cmath>
#include <optional>

#include "lib/engine/schedule/pass_budget.hpp"
#include "lib/engine/schedule/remaining_work.hpp"

namespace pecia::schedule {

class TimeBudget {
 public:
  explicit TimeBudget(const SchedulerLimits& limits);

  /// Whether this start has an end, stated or assumed.
  bool limited() const { return std::isfinite(end_s_); }
  /// Whether what is read of a prompt is kept for the next start.
  bool keeps_kv() const { return keeps_kv_; }
  /// Until passes have to be over; negative after that.
  double left_s(double now) const { return end_s_ - now; }
  /// Returns false where no end was assumed. Else there is none from now on.
  bool forget_assumed_end();

  /// Of a request whose first open turn has these lengths, if it began now and ran alone. Requires
  /// that the state knows how long passes take.
  double seconds_alone(const SchedulerState& state, int64_t prompt_tokens,
                       int64_t answer_tokens) const;
  /// Whether the request would be answered in time if it began now and ran alone.
  bool in_time_alone(const SchedulerState& state, const batch::Request& request, double now) const;
  /// Whether it would be beside all work under way.
  bool in_time(const SchedulerState& state, const batch::Request& request, double now) const;
  /// Whether a later turn of a chain or branch, whose earlier turns are cached, would be.
  bool turn_in_time(const SchedulerState& state, const ActiveSequence& sequence, double now) const;
  /// Whether the fork's next branch would be.
  bool branch_in_time(const SchedulerState& state, const RequestState& fork, double now) const;

  /// Whether to begin a request although it will not be answered in time: no other work is left, and
  /// either what is read of it is kept or this start has finished nothing yet.
  bool begins_anyway(const SchedulerState& state, double now) const;
  /// Which of the late requests that is: the first where what is read is kept, else the one nearest
  /// to an answer. Requires that there are some.
  size_t late_to_begin(const SchedulerState& state) const;
  /// A prompt that turns out too slow, the last one, whose place others could have. A prompt of
  /// which nothing has been read goes at once. Another goes only when it is far too slow, since what
  /// has been read of it is lost. Absent: there is none, or it is kept in any case.
  std::optional<int64_t> too_slow(const SchedulerState& state, double now) const;

  PassBudget of_pass(const SchedulerState& state, double now) const;

 private:
  bool in_time(const SchedulerState& state, const RemainingWork& more, double now) const;
  double seconds_of_active(const SchedulerState& state, const RemainingWork& more) const;
  bool all_begin() const { return !limited() || keeps_kv_ || assumed_; }

  double end_s_;  ///< infinite: no end
  bool keeps_kv_, assumed_;
  double side_by_side_;  ///< passes at a time; the times of passes are of one of them
};

}  // namespace pecia::schedule
