#pragma once
/// Signals that ask a run to drain: finish the pass, save what is generated, leave with code 75.

namespace pecia::runtime {

/// Catches SIGTERM, SIGUSR1 and SIGINT from construction to destruction. One at a time in a process.
class DrainSignals {
 public:
  DrainSignals();
  ~DrainSignals();
  DrainSignals(const DrainSignals&) = delete;
  DrainSignals& operator=(const DrainSignals&) = delete;

  /// Whether one of them has come to this process.
  bool received() const;
};

}  // namespace pecia::runtime
