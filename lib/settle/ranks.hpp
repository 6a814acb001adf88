// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The ranks of a run in the order of their process grid.

#include <memory>
#include <vector>

#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/comm/place.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::settle {

/// The ranks of a run, and this process among them.
struct Ranks {
  comm::Communicator& world;
  std::unique_ptr<comm::Communicator> ordered;  ///< all ranks, in grid order
  std::unique_ptr<comm::Communicator> replica;  ///< the ranks of this rank's replica
  std::vector<comm::RackServerGpu> places;      ///< by rank of `ordered`
  int dp = 0;                                   ///< index of this rank's replica
  int stage = 0;                                ///< and of its stage

  /// Whether this is the one rank that opens the results and speaks for the run.
  bool is_root() const { return ordered->rank() == 0; }
  /// Whether this rank makes the passes of its replica.
  bool planning() const { return replica->rank() == 0; }
  std::vector<comm::RackServerGpu> replica_places() const;
};

/// Orders ranks that are at these places (by rank of `world`) by the degrees of `resources`.
/// Collective over `world`.
Ranks make_ranks(const std::vector<comm::RackServerGpu>& places,
                 const resources::Resources& resources, comm::Communicator& world);

}  // namespace pecia::settle
