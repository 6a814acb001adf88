// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace pecia::execute {

/// The time of a run; tests have their own.
struct RunClock {
  std::function<double()> seconds;      ///< seconds since the run began
  std::function<void(double)> sleep_s;  ///< gives the core away for this time
};

/// A clock that starts now.
RunClock steady_run_clock();

}  // namespace pecia::execute
