// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Assigns ranks to the DP × PP × CP × SP × TP grid. The result is a pure function of the ranks' places,
/// so the launcher's numbering does not matter.
///
/// Ranks are sorted by place, with each replica in as few racks as possible (grid_order.hpp). TP is
/// numbered innermost, on the closest ranks, then SP, CP, PP, DP:
///
///     index = (((dp · PP + pp) · CP + cp) · SP + sp) · TP + tp
///
/// Two racks with two servers of two ranks each, DP 2 × CP 2 × SP 1 × TP 2:
///
///     place    a:n1:0  a:n1:1  a:n2:0  a:n2:1  b:n3:0  b:n3:1  b:n4:0  b:n4:1
///     dp cp tp 0 0 0   0 0 1   0 1 0   0 1 1   1 0 0   1 0 1   1 1 0   1 1 1
///
/// Here a TP group stays in a server and a CP ring in a rack; only replicas are in different racks.
/// A ring through several racks enters each of them once.

#include <span>
#include <string>
#include <vector>

#include "lib/ranks/cluster/topology.hpp"

namespace pecia::cluster {

enum class Axis { dp, pp, cp, sp, tp };

struct GridShape {
  int dp = 1, cp = 1, sp = 1, tp = 1;
  int pp = 1;  ///< stages of layers

  int64_t ranks() const { return int64_t{dp} * pp * cp * sp * tp; }
  bool operator==(const GridShape&) const = default;
};

struct GridCoordinates {
  int dp = 0, cp = 0, sp = 0, tp = 0, pp = 0;
  bool operator==(const GridCoordinates&) const = default;
};

class ProcessGrid {
 public:
  /// `places` is by rank, all different. Throws InputError when the shape does not use every rank
  /// exactly once.
  ProcessGrid(GridShape shape, std::span<const comm::RackServerGpu> places);

  const GridShape& shape() const { return shape_; }
  GridCoordinates coordinates(int rank) const;
  int rank_at(const GridCoordinates& coordinates) const;

  /// The ranks that differ from `rank` in `axis` only, including `rank`, in the order of the axis.
  std::vector<int> group(Axis axis, int rank) const;

  /// The ranks of one replica, in grid order: the group that runs a request together.
  std::vector<int> replica(int dp) const;

 private:
  GridShape shape_;
  std::vector<int> rank_at_index_;
  std::vector<int> index_of_rank_;
};

}  // namespace pecia::cluster
