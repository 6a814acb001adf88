// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Signals that ask a run to drain: finish the pass, save what is generated, leave with code 75.
/// SIGPIPE is one: nobody reads any more what the run says.
/// Launchers and batch systems send them more than once, so only a second SIGINT, from the
/// keyboard, ends the process at once.

#include <string_view>

namespace pecia::run {

/// Catches SIGTERM, SIGUSR1, SIGPIPE and SIGINT from construction to destruction; at most one object at a
/// time in a process. Meanwhile SIGXFSZ is ignored, so a write beyond a limit of file sizes fails
/// with an error.
class DrainSignals {
 public:
  DrainSignals();
  ~DrainSignals();
  DrainSignals(const DrainSignals&) = delete;
  DrainSignals& operator=(const DrainSignals&) = delete;

  /// From this object's end on SIGTERM, SIGUSR1 and SIGPIPE are ignored: the run has drained, and a signal that
  /// reaches this rank later than others asks for no more.
  void ignore_later_ones() { ignores_later_ones_ = true; }

  /// Whether such a signal has reached this process since the last object was made.
  static bool received();

  /// Sets what the handler says at once on stderr at the first signal: "pecia: SIGINT: stops after
  /// TEXT; …". The one rank that speaks calls it before each pass. Without a call nothing is said.
  static void stops_after(std::string_view text);

 private:
  bool ignores_later_ones_ = false;
};

}  // namespace pecia::run
