#pragma once
/// How far the run is: every replica adds what it has done, the run's first rank shows the sum.

#include <array>
#include <chrono>
#include <memory>
#include <optional>

#include "lib/report/progress.hpp"
#include "lib/runtime/engine.hpp"
#include "lib/runtime/standing.hpp"

namespace pecia::runtime {

class RunProgress {
 public:
  /// Collective over `world`, and so is destroying it.
  explicit RunProgress(comm::Communicator& world);

  /// On the rank that shows it, before the first pass: what there is to do, and what of it
  /// `results` has.
  void show(const Job& job, const Inputs& inputs, const io::ResultsFile& results);

  /// On the rank that plans for a replica, after every pass; `tally` is all that the replica has
  /// done. Telling the others may cost messages, so calls that follow closely are left for the next
  /// one.
  void update(const Tally& tally);

  /// The same after the last pass, whenever it was.
  void add(const Tally& tally);

  /// On the rank that shows it, when all replicas have finished; `left` is how the results stand.
  void finish(const Standing& left);

 private:
  static constexpr size_t num_counters = 5;

  report::ProgressState state() const;

  std::array<std::unique_ptr<comm::SharedCounter>, num_counters> counters_;
  std::array<int64_t, num_counters> added_{};
  bool replays_ = false;
  int64_t arrived_ = 0;
  std::chrono::steady_clock::time_point last_added_;
  report::ProgressTotals totals_;
  report::ProgressState start_;
  std::optional<report::Progress> shown_;
};

}  // namespace pecia::runtime
