// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Signals that ask a run to drain: finish the pass, save what is generated, leave with code 75.
/// Launchers and batch systems send them more than once, so only a second SIGINT, from the
/// keyboard, ends the process at once.

#include <string_view>

namespace pecia::run {

/// Catches SIGTERM, SIGUSR1 and SIGINT from construction to destruction. One at a time in a
/// process. Until then SIGXFSZ is ignored too: a write beyond a limit of file sizes fails with its
/// error instead.
class DrainSignals {
 public:
  DrainSignals();
  ~DrainSignals();
  DrainSignals(const DrainSignals&) = delete;
  DrainSignals& operator=(const DrainSignals&) = delete;

  /// Whether one of them has come to this process since the last such object was made.
  static bool received();

  /// What the first of them says at once on stderr, from the handler: "pecia: SIGINT: stops after
  /// TEXT; …". Called by the one rank that speaks, before each pass; without a call nothing is
  /// said.
  static void stops_after(std::string_view text);
};

}  // namespace pecia::run
