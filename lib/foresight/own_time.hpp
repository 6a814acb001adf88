// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a rank's program takes if nobody keeps it waiting: its peers are ready at once, and no other
/// message is on the links. A pass never takes less (replay.hpp), and this needs one rank's program
/// instead of all. It also says what the time goes into.

#include <array>

#include "lib/foresight/replay.hpp"

namespace pecia::foresight {

/// What other ranks do meanwhile.
enum class Others {
  idle,  ///< nothing, so that the rank takes no longer in any pass
  /// What this one does: those of its server compute and move memory with it, and those that share a
  /// link have equal parts of its rate. It takes about as long as the pass of all ranks, or longer
  /// where fewer of them send at once.
  alike
};

struct OwnTime {
  RankTimes times;  ///< waits are those of its own messages
  /// The ops and copies that last as long as their FLOPs, and those that last as long as their bytes.
  double compute_s = 0, memory_s = 0;
  std::array<double, comm::num_link_levels> waiting_s{};  ///< by the level that was waited for
  std::array<double, comm::num_link_levels> sent_bytes{};
  int64_t messages = 0;  ///< sent
};

/// `rank`: the program's. Ranks fill the cluster's servers in their order.
OwnTime own_time(const Program& program, int rank, const machines::Cluster& cluster,
                 Others others = Others::idle);

}  // namespace pecia::foresight
