// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Who works on what in one iteration. A replica's *instances* are its SP × TP blocks, numbered
/// from 0. Some of them form a team for a pass; the teams of an iteration have no instance in
/// common and work side by side, and an instance without a team waits for the next plan.
/// Source: LoongServe, §4 (elastic instances).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/parallel/pass.hpp"
#include "lib/parallel/sharding.hpp"

namespace pecia::parallel {

struct Team {
  std::vector<int32_t> instances;  ///< in the order of the ring
  /// The last instances of the ring, as many as this, have no rows. They hold keys of the team's
  /// sequences, and take part in attention.
  int32_t holders = 0;
  Ring ring = Ring::pass_kv;
  Sharding sharding = Sharding::base;

  int size() const { return static_cast<int>(instances.size()); }
  /// Instances that have rows: the first of the ring.
  int workers() const { return size() - holders; }
  /// An instance's place in the ring; absent where it is not in the team.
  std::optional<int> index_of(int instance) const;
  /// "instances 4, 5, 7"
  std::string text() const;

  template <typename A>
  void visit(A& archive) {
    archive(instances), archive(holders), archive(ring), archive(sharding);
  }
};

/// A replica's instances in their order.
Team team_of_all(int instances, Ring ring = Ring::pass_kv, Sharding sharding = Sharding::base);

/// What a team works on. Owners of rows are counted in the ring: owner 1 is instances[1].
struct TeamPass {
  Team team;
  std::vector<PassSequence> rows;
};

/// Throws InvalidArgument unless these teams can work side by side on a replica of so many
/// instances: each has an instance with rows, no instance is in two places.
void check_teams(const std::vector<TeamPass>& teams, int instances);

/// Which of the teams an instance is in; absent: in none.
std::optional<size_t> team_of(const std::vector<TeamPass>& teams, int instance);

/// rows_of for the instance at `index` of the team's ring; a holder has none.
std::vector<GlobalRange> rows_of(const PassSequence& sequence, const Team& team, int index);
int64_t num_rows(const std::vector<PassSequence>& pass, const Team& team, int index);

}  // namespace pecia::parallel
