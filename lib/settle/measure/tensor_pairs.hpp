// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How fast messages travel between the memories of devices.

#include <span>
#include <vector>

#include "lib/model/attention/compute.hpp"
#include "lib/ranks/cluster/link_measure.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::measure {

/// As cluster::measure_pairs, of messages in the memory of `compute`'s device. A message has arrived
/// when the host of its receiver knows that the stream has it. Each figure is the best of some
/// round trips.
///   tensors  the ranks of `world` in the same order, for tensors in this memory
/// Collective over `world`: ranks outside a pair wait; every rank gets the same.
std::vector<cluster::PairFigures> measure_tensor_pairs(comm::Communicator& world,
                                                       comm::Communicator& tensors,
                                                       const attention::Compute& compute,
                                                       std::span<const cluster::RankPair> pairs);

}  // namespace pecia::measure
