// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Plays the programs of all ranks of a replica on a described cluster: ops take the time that the
/// cluster's rates give, and messages meet on its links. It is deterministic, and no thread, fiber
/// or rank is needed.
///
/// Messages move when both sides have started them. The exchanges of a collective follow each other
/// by themselves, as they do where ranks poll or a GPU's stream holds them, or keep the rank from
/// going on where the cluster says so (RankPeaks::in_order). What adds up partial
/// sums takes no time of its own; the share of collectives has it. Ops are faster
/// while other ranks of the server wait for messages, as far as the cluster says so
/// (RankPeaks::alone, alone_flops): what the others do at the op's begin counts.
///
/// Where layers repeat, all ranks and all messages under way often are where they were some layers
/// before, to a millionth of the time between. Then what follows is the same as well. The layers up
/// to the last one are not played, and their time is counted.

#include <filesystem>
#include <functional>
#include <vector>

#include "lib/simulation/program.hpp"
#include "lib/work/cluster_files/cluster.hpp"

namespace pecia::simulation {

/// Where a rank's time in the pass goes. The sum of the parts is end_s.
struct RankTimes {
  double gemm_s = 0, attention_s = 0;  ///< ops with FLOPs
  double other_s = 0;                  ///< other ops, copies, and the pass's overhead
  double exposed_comm_s = 0;           ///< waits
  double end_s = 0;
};

struct ReplayResult {
  double seconds = 0;  ///< until the last rank is done
  std::vector<RankTimes> ranks;
  int64_t messages = 0;  ///< sent by all ranks
  int64_t played = 0;    ///< of these, the ones that were played one by one

  /// The times of the rank that waits least: the others wait for it.
  const RankTimes& busiest() const;
};

/// An op, a copy or a wait of a rank, in seconds since the pass began.
struct Moment {
  int rank;
  int32_t layer;
  const Step& step;
  double begin_s, end_s;
  int64_t bytes;  ///< read and written, copied, or waited for
};
/// Is shown all moments, those of one rank in their order. Every layer is played for it.
using OnMoment = std::function<void(const Moment& moment)>;

/// The number of ranks of other servers to which `rank` sends in what it starts.
int num_remote_peers(const comm::PhantomStart& start, int rank,
                     const cluster_files::Cluster& cluster);

/// `programs` are those of the ranks 0 … N−1 of a replica, which fill the cluster's servers in this
/// order. Throws InvalidArgument where ranks wait for messages that nobody sends, naming one of them
/// and its span, or where a message has another length than its receiver expects.
ReplayResult replay(const std::vector<Program>& programs, const cluster_files::Cluster& cluster,
                    const OnMoment& on_moment = {});

/// Replays the programs and writes their trace into `folder`, as report::tidy_traces leaves it: one
/// track for each rank, with the run's own names. `phase` names the pass: "prefill" or "decode", a
/// string literal. Throws SystemError where a file cannot be written.
ReplayResult write_trace(const std::vector<Program>& programs,
                         const cluster_files::Cluster& cluster, const char* phase,
                         const std::filesystem::path& folder);

}  // namespace pecia::simulation
