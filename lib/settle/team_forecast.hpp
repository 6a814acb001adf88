// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long this batch should take with teams of one kind or another. A part of it is played by the
/// scheduler (engine/schedule/simulate.hpp), with times of passes that follow from the rates.

#include <vector>

#include "lib/engine/schedule/simulated_requests.hpp"
#include "lib/settle/facts.hpp"

namespace pecia::settle {

class TeamForecast {
 public:
  /// `teams`: resources where teams change. All references must outlive this object. On the root rank.
  TeamForecast(const Facts& facts, const Rates& rates, const job::Job& job,
               const resources::Resources& teams);

  /// Seconds until the end of the batch, or, where arrivals are replayed, until the mean first token,
  /// on these resources, which have as many instances as `teams`.
  double seconds(const resources::Resources& resources) const;

 private:
  const Facts& facts_;
  const Rates& rates_;
  const job::Job& job_;
  schedule::TeamTimes times_;
  std::vector<schedule::SimulatedRequest> requests_;
};

/// What the seconds are of, for reasons: "for this batch", "to the first token".
const char* forecast_text(const job::Job& job);

}  // namespace pecia::settle
