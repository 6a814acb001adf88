// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Groups of ranks within groups, and how a block comes to all of them. Pure values.

#include <vector>

#include "lib/ranks/comm/place.hpp"
#include "lib/ranks/comm/server_map.hpp"

namespace pecia::comm {

/// At level 0 each rank is a group, at the highest level all ranks are one. Between them are servers,
/// and racks where these are given. In each group one rank acts for the owner of a block: at the
/// highest level the owner itself; in each smaller group the rank that acts in the one around it, or
/// else its delegate (ServerMap).
///
///     servers 0 0 1 1 2 2 3 3, racks 0 0 0 0 1 1 1 1, a block of rank 1
///     acts in rack 1         rank 5
///     acts on servers 0 … 3  ranks 1, 3, 5, 7
///     so the block goes      from 1 to 0, 3, 5; from 3 to 2; from 5 to 4, 7; from 7 to 6
class GroupTree {
 public:
  /// Servers and racks that join nothing, or everything, are left out. Throws InvalidArgument if a
  /// server is in several racks.
  explicit GroupTree(const RankLabels& labels);

  int num_ranks() const { return maps_.front().num_ranks(); }
  /// The highest level; 1: the route is flat.
  int top() const { return static_cast<int>(maps_.size()) - 1; }

  /// How a block of `owner` comes to a rank.
  struct Way {
    int level = 0;      ///< the highest one at which the rank acts for the owner
    int from = -1;      ///< the rank that sends it; for the owner there is none
    int exchange = -1;  ///< the number of the exchange that brings it; for the owner −1
  };
  Way way(int owner, int rank) const;

  /// The ranks that act, if `rank` acts in its group of `level`, in the groups of the level below
  /// within it: in the order of their lowest ranks. One of them is `rank`.
  std::vector<int> delegates(int level, int rank) const;

 private:
  std::vector<ServerMap> maps_;  ///< by level
};

/// The trees of a group's collectives: by servers, and by racks for large blocks.
class GroupTrees {
 public:
  explicit GroupTrees(const RankLabels& labels);

  const GroupTree& by_servers() const { return by_servers_; }
  /// That of a collective whose largest block has this size.
  const GroupTree& of(int64_t largest_block) const {
    return largest_block >= least_block_by_racks_ ? by_racks_ : by_servers_;
  }

 private:
  GroupTree by_servers_, by_racks_;
  int64_t least_block_by_racks_;
};

}  // namespace pecia::comm
