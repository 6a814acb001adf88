#include "lib/context/replica_groups.hpp"

#include "lib/core/error.hpp"
#include "lib/parallel/heads.hpp"

namespace pecia::context {

ReplicaGroups make_replica_groups(comm::Communicator& replica, int sp, int tp,
                                  std::span<const int> servers) {
  const int block = sp * tp, rank = replica.rank(), size = replica.size();
  PECIA_CHECK(sp >= 1 && tp >= 1 && size % block == 0, "{} ranks in blocks of SP {} × TP {}", size,
              sp, tp);
  PECIA_CHECK(servers.empty() || static_cast<int>(servers.size()) == size,
              "{} server labels for {} ranks", servers.size(), size);
  ReplicaGroups groups;
  groups.cp = size / block;
  groups.cp_index = rank / block;
  groups.place = {sp, tp, rank % block / tp, rank % tp};
  const int cp_index = groups.cp_index, sp_index = groups.place.sp_index,
            tp_index = groups.place.tp_index;
  groups.ring = replica.split(rank % block, cp_index);
  groups.sp = replica.split(cp_index * tp + tp_index, sp_index);
  groups.tp = replica.split(cp_index * sp + sp_index, tp_index);
  groups.block = replica.split(cp_index, parallel::kv_shard(sp, sp_index, tp_index));

  const auto server = [&](int i, int j) {
    return servers.empty() ? 0 : servers[(cp_index * sp + i) * tp + j];
  };
  for (int j = 0; j < tp; ++j) {
    groups.tp_servers.push_back(server(sp_index, j));
    for (int i = 0; i < sp; ++i) groups.block_servers.push_back(server(i, j));
  }
  return groups;
}

}  // namespace pecia::context
