// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Describes the machine that the ranks run on, in the form of a cluster file.

#include <vector>

#include "lib/model/attention/compute.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/settle/measure/op_sizes.hpp"
#include "lib/work/cluster_files/cluster.hpp"

namespace pecia::measure {

/// Measures what each rank of `world` gets while all do the same, with the threads of its stream or
/// on its GPU; it takes some seconds. Ops are timed as a pass finds them (op_timer.hpp): products with
/// bf16 weights by rows, depth and width, attention with keys of the type that products take by rows
/// and keys, and an op that only reads and writes by its bytes. Curves are of the best times, and
/// their factor is the share of these rates that all ranks have over some seconds. memory_gbs is what
/// the fastest of these ops reads and writes, in caches. Links are measured between two ranks of each
/// level; their shares are those of a ring of all ranks and of an all-to-all. A level without two
/// ranks has the figures of the level below it, and with one rank of copies in its memory. step_us,
/// what the host does for a pass beside ops, is 0: execute::measure_step_us has it.
///
/// On GPUs nothing is shared between ranks but links: `alone`, `alone_flops` and the factors of
/// curves are 1, and there are no pieces. flops has fp8 where tensor cores multiply it, and its shares
/// are those of bf16. op_us is that of an op in a step, which the stream may launch as a graph, and
/// step_us what the host waits for a step to begin and to end. Links and exchanges are those of
/// messages in the GPUs' memory by `tensors`. memory_gib is the whole memory of the smallest GPU.
///   tensors     the ranks of `world` in the same order, for tensors where `compute` is
///   places      by rank: where the ranks are
///   host_bytes  memory of this rank's host
///   rounds      how often each op is measured; the best counts
/// Collective over `world`; every rank gets the same.
cluster_files::Cluster describe_cluster(comm::Communicator& world, comm::Communicator& tensors,
                                        const std::vector<comm::RackServerGpu>& places,
                                        const attention::Compute& compute, const OpSizes& sizes,
                                        int64_t host_bytes, int rounds);

}  // namespace pecia::measure
