// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sparse attention on a described cluster: into how many micro-partitions its levels are cut.

#include "lib/foresight/replica_passes.hpp"

namespace pecia::foresight {

/// What each of `ranks` ranks sends to others, in B/s, when all of them do so.
double all_to_all_bandwidth(const machines::Cluster& cluster, int ranks);

/// The replica's setting. Where it leaves the number of micro-partitions open, it is the one that a
/// run would choose by rule with this cluster's rates. Absent without sparse attention.
std::optional<parallel::SparseSetting> settled_levels(const Replica& replica,
                                                      const machines::Cluster& cluster);

}  // namespace pecia::foresight
