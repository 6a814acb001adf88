#pragma once
/// The loop of one replica: its rank 0 plans, all ranks execute, results go to disk as turns
/// finish.

#include <functional>
#include <vector>

#include "lib/runtime/scheduler.hpp"
#include "lib/runtime/source.hpp"
#include "lib/runtime/worker.hpp"

namespace pecia::runtime {

/// What a replica did, counted where it was planned.
struct Tally {
  int64_t done = 0, failed = 0, partial = 0;
  int64_t prompt_tokens = 0, output_tokens = 0, cached_tokens = 0;
  double prefill_s = 0, decode_s = 0;          ///< wall time of passes
  double prefill_flops = 0, decode_flops = 0;  ///< of all the replica's ranks
  std::vector<double> ttft_s;                  ///< by turn
  std::vector<double> tbt_s;                   ///< by output token after a turn's first

  template <typename A>
  void visit(A& archive) {
    archive(done), archive(failed), archive(partial), archive(prompt_tokens),
        archive(output_tokens), archive(cached_tokens), archive(prefill_s), archive(decode_s),
        archive(prefill_flops), archive(decode_flops), archive(ttft_s), archive(tbt_s);
  }
};

/// What only the replica's rank 0 has.
struct Planner {
  Scheduler& scheduler;
  Source& source;
  io::ResultsFile& results;
  std::string mode;  ///< written into the results
  int32_t replica = 0;
  /// Asked between passes: drain now? `told`: a rank of the replica was told to stop.
  std::function<bool(bool told)> stopping;
  std::function<void(const Tally&)> on_pass;  ///< after every pass
};

/// Runs until nothing is left, or `stopping` says so: then turns under way are written as partial.
/// Collective over `replica`; `planner` on its rank 0 alone, null elsewhere. `told` is asked on
/// every rank: was it told to stop? The tally is rank 0's.
Tally run_replica(comm::Communicator& replica, Worker& worker, report::Recorder& recorder,
                  Planner* planner, const std::function<bool()>& told);

}  // namespace pecia::runtime
