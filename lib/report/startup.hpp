// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a process does from main to its first pass, timed: phases that follow one another.

#include <string>
#include <vector>

#include "lib/report/progress.hpp"

namespace pecia::report {

struct StartPhase {
  std::string name;
  double seconds = 0;
};

class Startup {
 public:
  /// Made first thing in main; `first` begins now. `unix_s`: now, in seconds since 1970, so that
  /// whoever launched the program can tell how long that took.
  Startup(std::string first, double unix_s, MonotonicClock clock = steady_time);

  /// Ends the phase under way and begins this one.
  void begin(std::string name);
  /// Ends the phase under way, and with it the start.
  void end();

  double main_unix_s() const { return unix_s_; }
  /// Those that have ended, in order.
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
