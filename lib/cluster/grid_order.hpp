// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The order of ranks that a process grid numbers: near ranks beside each other, and replicas in as
/// few racks as their sizes allow.

#include <span>
#include <vector>

#include "lib/comm/place.hpp"

namespace pecia::cluster {

/// The ranks, `replica_ranks` of each replica after the other; inside a replica by place, so that a
/// ring through it enters each rack once. `places` by rank, a multiple of `replica_ranks`.
///
/// Each rack first gives the replicas that fit into it whole. What is left of the racks is joined
/// such that as few racks as possible are cut between two replicas: exactly the fewest while at
/// most 16 rests do not complete each other in pairs.
///
///     racks of 1, 4, 3 ranks, replicas of 4     b b b b | a c c c, not a b b b | b c c c
///
/// Depends on the set of places alone, not on who is where.
std::vector<int> grid_order(std::span<const comm::RackServerGpu> places, int replica_ranks);

}  // namespace pecia::cluster
