// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Describes the machine that the ranks run on, in the form of a cluster file.

#include <vector>

#include "lib/comm/communicator.hpp"
#include "lib/context/compute.hpp"
#include "lib/machines/cluster.hpp"

namespace pecia::measure {

/// Measures what each rank of `world` gets while all do the same, with the threads of its stream; it
/// takes about a second. Shares are of calls of a few sizes, of products with bf16 weights and of
/// attention with keys of the type that products take. Links are measured between two ranks of each
/// level; their shares are those of a ring of all ranks and of an all-to-all. A level without two
/// ranks has the figures of the level below it, and with one rank of copies in its memory. What the
/// host does for a pass beside ops (step_us) is not measured: it is 0.
///   places        by rank: where the ranks are
///   cache_bytes   of the caches of this rank's threads
///   memory_bytes  of this rank's host
/// Collective over `world`; every rank gets the same. Throws Unsupported on GPUs, where messages
/// take other ways than these.
machines::Cluster describe_cluster(comm::Communicator& world,
                                   const std::vector<comm::RackServerGpu>& places,
                                   const context::Compute& compute, int64_t cache_bytes,
                                   int64_t memory_bytes);

}  // namespace pecia::measure
