// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Times the successive phases of a process from main to its first pass.

#include <string>
#include <vector>

#include "lib/base/report/progress.hpp"

namespace pecia::report {

struct StartPhase {
  std::string name;
  double seconds = 0;
};

class Startup {
 public:
  /// Made at the beginning of main; phase `first` begins now. `unix_s` is the current time in
  /// seconds since 1970, so that the program's launcher can compute how long the launch took.
  Startup(std::string first, double unix_s, MonotonicClock clock = steady_time);

  /// Ends the current phase and begins phase `name`.
  void begin(std::string name);
  /// Ends the current phase and the startup.
  void end();

  double main_unix_s() const { return unix_s_; }
  /// Phases that have ended, in order.
  const std::vector<StartPhase>& phases() const { return phases_; }

 private:
  double unix_s_;
  MonotonicClock clock_;
  std::string under_way_;
  std::chrono::nanoseconds since_;
  std::vector<StartPhase> phases_;
};

/// Seconds since 1970.
double unix_time();

}  // namespace pecia::report
