// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Tells who works on what in one iteration. A replica's *instances* are its SP × TP blocks,
/// numbered from 0. Some of them form a team for a pass. The teams of an iteration have no instance
/// in common and work side by side. An instance without a team waits for the next plan.
/// Source: LoongServe (elastic instances).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/ranks/parallel/pass.hpp"
#include "lib/ranks/parallel/placement.hpp"
#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::parallel {

struct Team {
  std::vector<int32_t> instances;  ///< in the order of the ring
  /// The number of instances at the end of the ring that have no rows. They hold keys of the team's
  /// sequences and take part in attention.
  int32_t holders = 0;
  AttentionExchange ring = AttentionExchange::pass_kv;
  Sharding sharding = Sharding::base;

  int size() const { return static_cast<int>(instances.size()); }
  /// Counts the instances that have rows. They are the first of the ring.
  int workers() const { return size() - holders; }
  /// Returns an instance's place in the ring. It is absent if the instance is not in the team.
  std::optional<int> index_of(int instance) const;
  /// Returns a text such as "instances 4, 5, 7".
  std::string text() const;

  template <typename A>
  void visit(A& archive) {
    archive(instances), archive(holders), archive(ring), archive(sharding);
  }
};

/// Returns the team of all instances of a replica, in their order.
Team team_of_all(int instances, AttentionExchange ring = AttentionExchange::pass_kv,
                 Sharding sharding = Sharding::base);

/// What a team works on. Owners of rows are counted in the ring: owner 1 is instances[1]. Keys and
/// values of a sequence without a placement stay where its rows are computed.
struct TeamPass {
  Team team;
  std::vector<PassSequence> rows;
  std::vector<Placement> placements = {};

  /// Returns the sequence's placement. It is null if the sequence has none.
  const Placement* placement(SequenceId sequence) const;
};

/// Throws InvalidArgument unless these teams can work side by side on a replica with `instances`
/// instances. Each team must have an instance with rows. No instance may be in two places. Keys can
/// be placed only where they travel: in a ring pass_kv of two or more instances.
void check_teams(const std::vector<TeamPass>& teams, int instances);

/// Returns the team that an instance is in. It is absent if the instance is in no team.
std::optional<size_t> team_of(const std::vector<TeamPass>& teams, int instance);

/// Returns rows_of for the instance at `index` of the team's ring. A holder has no rows.
std::vector<GlobalRange> rows_of(const PassSequence& sequence, const Team& team, int index);
int64_t num_rows(const std::vector<PassSequence>& pass, const Team& team, int index);

}  // namespace pecia::parallel
