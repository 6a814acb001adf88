#pragma once
/// How far the run is, as its first rank sees it: its own replica's passes, everybody's finished turns.

#include "lib/report/progress.hpp"
#include "lib/runtime/engine.hpp"

namespace pecia::runtime {

class RunProgress {
 public:
  /// All references outlive this object. `dp`: replicas that share the work.
  RunProgress(const Job& job, const Inputs& inputs, const io::ResultsFile& results, int dp);

  /// After every pass of this replica.
  void update(const Tally& tally);
  /// After the last pass of all replicas.
  void finish(const Tally& tally);

  /// Turns that are neither done nor failed, and failed ones, as the file says now.
  int64_t open() const;
  int64_t failed() const { return count(io::TurnState::failed); }

 private:
  int64_t count(io::TurnState state) const;
  report::ProgressState state(const Tally& tally) const;

  const io::ResultsFile& results_;
  int dp_;
  report::ProgressTotals totals_;
  report::ProgressState start_;
  std::optional<report::Progress> progress_;
};

}  // namespace pecia::runtime
