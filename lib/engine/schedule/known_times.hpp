// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long passes take, as far as a scheduler knows: the estimates of its limits, fitted to every
/// pass that ends.

#include <optional>

#include "lib/engine/schedule/plan.hpp"
#include "lib/engine/schedule/scheduler_limits.hpp"

namespace pecia::schedule {

class KnownTimes {
 public:
  explicit KnownTimes(const SchedulerLimits& limits);

  /// Takes in a pass that lasted this number of seconds. `restored`: its keys were read from a save.
  void add(const Plan& plan, bool restored, double seconds);
  /// Seconds of the plan by the measured rates; absent until passes of its kinds were measured.
  std::optional<double> expected_seconds(const Plan& plan) const;

  std::optional<PassTimes> passes;  ///< of one instance where teams change; absent: no time limit
  std::optional<TeamTimes> teams;

 private:
  bool teams_change_;
};

}  // namespace pecia::schedule
