// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The policy of order: what begins first, and which prompts are read first.
///
/// lib/work/batch hands requests over longest first, or as they arrive, and those that share a prefix as
/// one fork. They begin in this order. Where requests are to wait least (`batch.objective: ttft`),
/// those begin and are read first that are due first (elastic_urgency.hpp).

#include <optional>

#include "lib/engine/schedule/scheduler_state.hpp"

namespace pecia::schedule {

class Order {
 public:
  explicit Order(const SchedulerLimits& limits);

  /// Seconds after it could begin at which a request's first token is due; absent: the order is not
  /// by time.
  std::optional<double> patience_s(const SchedulerState& state,
                                   const batch::Request& request) const;
  /// The place of a request that has come among those that wait.
  size_t place(const SchedulerState& state, const RequestState& request) const;
  /// Whether a branch of the fork begins before everything else: none of its branches is active, and
  /// meanwhile its prefix would hold its keys for nothing.
  bool comes_first(const RequestState& fork) const { return fork.active_branches == 0; }
  /// Sequences whose prompts could be read on, the first to be read first: as they began, or by when
  /// they are due.
  Selection prompts(SchedulerState& state) const;

 private:
  bool by_time_;
};

}  // namespace pecia::schedule
