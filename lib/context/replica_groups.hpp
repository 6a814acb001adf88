// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The groups of one replica that a rank communicates in.

#include <memory>
#include <span>
#include <vector>

#include "lib/comm/communicator.hpp"
#include "lib/parallel/sharding.hpp"

namespace pecia::context {

struct ReplicaGroups {
  int cp = 1, cp_index = 0;
  parallel::BlockPlace place;                 ///< in the SP × TP block
  std::unique_ptr<comm::Communicator> ring;   ///< ranks of the same sp and tp, by cp
  std::unique_ptr<comm::Communicator> sp;     ///< of the same cp and tp, by sp
  std::unique_ptr<comm::Communicator> tp;     ///< of the same cp and sp, by tp
  std::unique_ptr<comm::Communicator> block;  ///< of the same cp, by parallel::kv_shard
  std::vector<int> tp_servers,
      block_servers;  ///< labels of the ranks' servers, by rank of the group
};

/// Rank (cp_index · sp + sp_index) · tp + tp_index of `replica`, which has cp · sp · tp ranks.
/// `places` by rank of the replica, or none: then all count as being on one server. Collective over
/// `replica`.
ReplicaGroups make_replica_groups(comm::Communicator& replica, int sp, int tp,
                                  std::span<const comm::RackServerGpu> places = {});

/// Whether the host waits for no transfer between ops: they are on the stream, or the rank is
/// alone.
bool stays_on_stream(const ReplicaGroups& groups);

/// What this rank has sent in all groups together.
comm::Traffic traffic_of(const ReplicaGroups& groups);

}  // namespace pecia::context
