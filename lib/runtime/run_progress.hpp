#pragma once
/// How far the run is, as its first rank sees it: its own replica's passes, everybody's finished turns.

#include "lib/report/progress.hpp"
#include "lib/runtime/engine.hpp"
#include "lib/runtime/standing.hpp"

namespace pecia::runtime {

class RunProgress {
 public:
  /// `results` is read once. `dp`: replicas that share the work.
  RunProgress(const Job& job, const Inputs& inputs, const io::ResultsFile& results, int dp);

  /// After every pass of this replica.
  void update(const Tally& tally);
  /// After the last pass of all replicas; `left` is how the results stand now.
  void finish(const Tally& tally, const Standing& left);

 private:
  report::ProgressState state(const Tally& tally) const;

  int dp_;
  report::ProgressTotals totals_;
  report::ProgressState start_;
  std::optional<report::Progress> progress_;
};

}  // namespace pecia::runtime
