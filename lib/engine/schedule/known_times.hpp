// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long passes take, as far as a scheduler knows: the estimates of its limits, fitted to every
/// pass that ends.

#include <optional>

#include "lib/engine/schedule/plan.hpp"
#include "lib/engine/schedule/row_times.hpp"
#include "lib/engine/schedule/scheduler_limits.hpp"

namespace pecia::schedule {

class KnownTimes {
 public:
  explicit KnownTimes(const SchedulerLimits& limits);

  /// Takes in a pass that lasted this number of seconds. `restored`: its keys were read from a save.
  void add(const Plan& plan, bool restored, double seconds);
  /// Takes in that keys of this number of tokens left the cache or came back to it, the instances
  /// side by side. Tokens are those of a sequence; where teams change, those of one instance.
  void add_parking(int64_t tokens, const std::vector<Outcome>& outcomes);
  /// Seconds until keys of this number of tokens are parked, or are back: as measured, or else as
  /// estimated.
  double parking_s(int64_t tokens) const;
  /// Seconds of the plan by the measured rates; absent until passes of its kinds were measured.
  std::optional<double> expected_seconds(const Plan& plan) const;

  /// Seconds of the answers' next tokens in a pass of their own, without what the plan drafts of them;
  /// absent: such passes were not measured (RowTimes::knows), or teams change.
  std::optional<double> seconds_without_drafts(const Plan& plan) const;

  std::optional<PassTimes> passes;  ///< of one instance where teams change; absent: nobody knows
  std::optional<TeamTimes> teams;
  std::optional<RowTimes>
      answer_passes;  ///< of passes of answers alone, with drafts; absent where teams change

 private:
  bool teams_change_;
  double token_parking_s_;  ///< the estimate
  int64_t moved_tokens_ = 0;
  double moved_s_ = 0;
};

}  // namespace pecia::schedule
