// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Groups of a replica whose blocks, or whose ring, have one rank.

#include "lib/model/attention/replica_groups.hpp"
#include "lib/ranks/comm/communicator_over.hpp"

namespace pecia::attention {

/// Another owner of a communicator, which must outlive it.
class Borrowed : public comm::CommunicatorOver {
 public:
  explicit Borrowed(comm::Communicator& inner) : CommunicatorOver(inner) {}

  std::unique_ptr<comm::Communicator> split(int color, int key) override {
    return inner().split(color, key);
  }
  std::unique_ptr<comm::Communicator> split_by_host() override { return inner().split_by_host(); }
};

inline ReplicaGroups groups_of_one_rank() {
  ReplicaGroups groups;
  groups.place = {1, 1, 0, 0};
  for (auto* group : {&groups.ring, &groups.sp, &groups.tp, &groups.block})
    *group = comm::make_null_communicator();
  groups.ring_places = groups.tp_places = {{}};
  return groups;
}

/// `ranks` share tokens (CP). They must outlive the groups.
inline ReplicaGroups ring_groups(comm::Communicator& ranks,
                                 std::vector<comm::RackServerGpu> places = {}) {
  ReplicaGroups groups = groups_of_one_rank();
  groups.cp = ranks.size(), groups.cp_index = ranks.rank();
  groups.ring = std::make_unique<Borrowed>(ranks);
  if (places.empty()) places.resize(ranks.size());
  groups.ring_places = std::move(places);
  return groups;
}

/// `ranks` share heads (TP). They must outlive the groups.
inline ReplicaGroups head_groups(comm::Communicator& ranks,
                                 std::vector<comm::RackServerGpu> places) {
  ReplicaGroups groups = groups_of_one_rank();
  groups.place = {1, ranks.size(), 0, ranks.rank()};
  groups.tp = std::make_unique<Borrowed>(ranks);
  groups.tp_places = std::move(places);
  return groups;
}

}  // namespace pecia::attention
