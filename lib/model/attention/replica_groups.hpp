// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The groups of one replica that a rank communicates in.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/base/core/dtype.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/parallel/kv_routes.hpp"
#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::attention {

struct ReplicaGroups {
  int stages = 1, stage = 0;  ///< the groups below but `line` are within the rank's stage
  int cp = 1, cp_index = 0;
  parallel::BlockPlace place;                 ///< place in the SP × TP block
  std::unique_ptr<comm::Communicator> ring;   ///< ranks of the same sp and tp, by cp
  std::unique_ptr<comm::Communicator> sp;     ///< ranks of the same cp and tp, by sp
  std::unique_ptr<comm::Communicator> tp;     ///< ranks of the same cp and sp, by tp
  std::unique_ptr<comm::Communicator> block;  ///< ranks of the same cp, by parallel::kv_shard
  /// Ranks of the same cp, sp and tp in all stages, by stage; null with one stage.
  std::unique_ptr<comm::Communicator> line;
  /// The ranks of `ring` once more, for keys that travel beside passes (key_copies.hpp); null where
  /// none do. Where the ring's transfers are on a device's stream, these take the way through the host.
  std::unique_ptr<comm::Communicator> copies;
  std::vector<int> sp_servers;               ///< labels of the ranks' servers, by rank of the group
  comm::RankLabels tp_labels, block_labels;  ///< nothing goes by racks until its costs are known
  /// Places of the ranks of these groups; all the same where they are not known.
  std::vector<comm::RackServerGpu> ring_places, tp_places;
  DType wire = DType::fp32;        ///< type in which activations travel: fp32, or bf16
  parallel::LinkCosts link_costs;  ///< by which routes are chosen; the same on all ranks
  std::string sums_by;             ///< how sums of decode steps travel, for the log; "": no choice
};

/// Makes the groups of rank ((stage · cp + cp_index) · sp + sp_index) · tp + tp_index of `replica`,
/// which has stages · cp · sp · tp ranks. `places` has an entry for each rank of the replica. If it is
/// empty, all ranks count as being on one server. Experts are dealt out over `ep` ranks, 1 or sp · tp.
/// `copies`: makes that group. The call is collective over `replica`. Throws InputError if the ranks
/// give different wires.
ReplicaGroups make_replica_groups(comm::Communicator& replica, int sp, int tp,
                                  std::span<const comm::RackServerGpu> places = {}, int ep = 1,
                                  DType wire = DType::fp32, bool copies = false, int stages = 1);

/// Tells whether the host waits for no transfer between ops. Either the transfers are on the
/// stream, or the rank is alone.
bool stays_on_stream(const ReplicaGroups& groups);

/// Returns what this rank has sent in all groups together.
comm::Traffic traffic_of(const ReplicaGroups& groups);

}  // namespace pecia::attention
