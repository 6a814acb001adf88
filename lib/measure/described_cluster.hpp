// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Describes the machine that the ranks run on, in the form of a cluster file.

#include <vector>

#include "lib/comm/communicator.hpp"
#include "lib/context/compute.hpp"
#include "lib/machines/cluster.hpp"

namespace pecia::measure {

/// Measures what each rank of `world` gets while all do the same, with the threads of its stream; it
/// takes some seconds. Ops are timed as a pass finds them (op_timer.hpp): products with bf16 weights
/// by rows, depth and width, attention with keys of the type that products take by rows and keys,
/// and an op that only reads and writes by its bytes. Curves are of the best times, and their factor
/// is the share of these rates that all ranks have over some seconds. memory_gbs is what the fastest of
/// these ops reads and writes, in caches. Links are measured between two ranks of each level; their
/// shares are those of a ring of all ranks and of an all-to-all. A level without two ranks has the
/// figures of the level below it, and with one rank of copies in its memory. step_us, what the host
/// does for a pass beside ops, is 0: foresight::measure_step_us has it.
///   places        by rank: where the ranks are
///   cache_bytes   of the caches of this rank's threads
///   memory_bytes  of this rank's host
///   rounds        how often each op is measured; the best counts
/// Collective over `world`; every rank gets the same. Throws Unsupported on GPUs, where messages
/// take other ways than these.
machines::Cluster describe_cluster(comm::Communicator& world,
                                   const std::vector<comm::RackServerGpu>& places,
                                   const context::Compute& compute, int64_t cache_bytes,
                                   int64_t memory_bytes, int rounds = 4);

}  // namespace pecia::measure
