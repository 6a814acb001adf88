// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A KvMap for tests in which all instances work as one team, with equal room.

#include "lib/ranks/parallel/kv_map.hpp"

namespace pecia::parallel {

class OneTeamMap : public KvMap {
 public:
  using KvMap::append;
  using KvMap::KvMap;

  void add(SequenceId sequence, int64_t reserved, std::optional<SequenceId> parent = {}) {
    KvMap::add(sequence, std::vector<int64_t>(instances(), reserved), parent);
  }
  void append(const PassSequence& rows) { KvMap::append(rows, team_of_all(instances())); }
};

}  // namespace pecia::parallel
