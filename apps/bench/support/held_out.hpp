// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How well the times of passes are foretold that were not measured.

#include <vector>

#include "apps/bench/support/floors.hpp"
#include "apps/bench/support/replica.hpp"
#include "apps/bench/support/results.hpp"
#include "lib/engine/schedule/pass_times.hpp"

namespace pecia::bench {

/// What the busiest instance had to do, and how long it took.
struct TimedWork {
  schedule::PassWork work;
  double seconds = 0;
};

/// The times that a run with elastic teams expects of an instance before it has measured any.
schedule::PassTimes expected_times(const LoadedModel& model, const ReplicaSettings& settings,
                                   const Floors& floors);

/// Returns |foretold / measured − 1| for each of at least two works. Each is foretold by the rates
/// that a run would fit to all the others, from `expected` on.
std::vector<double> held_out_errors(const std::vector<TimedWork>& measured,
                                    const schedule::RateFit& expected);

/// Prints and writes these errors of all that a benchmark measured, if that is enough to fit rates.
void print_held_out(const Results& results, const std::vector<TimedWork>& measured,
                    const schedule::RateFit& expected);

}  // namespace pecia::bench
