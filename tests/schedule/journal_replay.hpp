// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Replays a scheduler's journal of yields (schedule/yields.hpp) beside its plans.

#include "lib/engine/schedule/scheduler.hpp"

namespace pecia::test {

class JournalReplay {
 public:
  /// Takes in the yields before `plan`. Throws where one contradicts those before it, or the plan:
  /// where teams do not change, ranks are told of exactly the keys that the journal parks and brings
  /// back.
  void take(const std::vector<schedule::Yield>& yields, const schedule::Plan& plan, bool elastic);
  /// Takes in the rest. Throws unless the journal has what the scheduler has counted, and nothing is
  /// parked at the end.
  void check_end(schedule::Scheduler& scheduler);

 private:
  void count(const schedule::Yield& yield);

  schedule::OutOfCache outside_;
  schedule::DemandCounts counted_;
};

}  // namespace pecia::test
