// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How well the times of passes are foretold that were not measured.

#include <vector>

#include "apps/bench_support/results.hpp"
#include "lib/schedule/pass_times.hpp"

namespace pecia::bench {

/// What the busiest instance had to do, and how long it took.
struct TimedWork {
  schedule::PassWork work;
  double seconds = 0;
};

/// Returns |foretold / measured − 1| for each of at least two works. Each is foretold by the rates
/// that a run would fit to all the others.
std::vector<double> held_out_errors(const std::vector<TimedWork>& measured);

/// Prints and writes these errors of all that a benchmark measured, if that is enough to fit rates.
void print_held_out(const Results& results, const std::vector<TimedWork>& measured);

}  // namespace pecia::bench
