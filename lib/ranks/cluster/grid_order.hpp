// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The order in which a process grid numbers ranks. Near ranks stand beside each other, and
/// replicas span as few racks as their sizes allow.

#include <span>
#include <vector>

#include "lib/ranks/comm/place.hpp"

namespace pecia::cluster {

/// Returns the ranks in order, `replica_ranks` for each replica in turn. Inside a replica they are
/// sorted by place, so that a ring through it enters each rack once. `places` is by rank; its size
/// is a multiple of `replica_ranks`.
///
/// Each rack first gives all replicas that fit whole into it. Its remaining ranks are joined with
/// the rest of other racks so that replica boundaries cut as few racks as possible. The number is
/// exactly the fewest while at most 16 rests remain after rests that complete each other in pairs
/// are joined.
///
///     racks of 1, 4, 3 ranks, replicas of 4     b b b b | a c c c, not a b b b | b c c c
///
/// The replicas depend only on the set of places, not on which rank is at which place.
std::vector<int> grid_order(std::span<const comm::RackServerGpu> places, int replica_ranks);

}  // namespace pecia::cluster
