// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the loops of a replica tell its run, on rank 0 of the replica, and ask it.

#include <optional>
#include <string>

#include "lib/engine/execute/replica_totals.hpp"
#include "lib/engine/schedule/plan.hpp"

namespace pecia::execute {

class RunObserver {
 public:
  virtual ~RunObserver() = default;

  /// The name, in the results, of the mode of a turn whose prompt used this ring, or gathered rows ("sp_tp").
  virtual std::string mode(const std::string& ring) = 0;
  /// Asked between passes: must the run drain now? `stop_requested`: a rank of the replica was told
  /// to stop.
  virtual bool stopping(bool stop_requested) = 0;

  /// A pass that computes will begin. `seconds`: expected for it; absent before passes were
  /// measured.
  virtual void planned(const schedule::Plan& plan, std::optional<double> seconds) = 0;
  /// A pass begins.
  virtual void begins(const schedule::Plan& plan, const execute::ReplicaTotals& totals) = 0;
  /// A pass has ended. Also called now and then without one.
  virtual void ended(const execute::ReplicaTotals& totals) = 0;
};

}  // namespace pecia::execute
