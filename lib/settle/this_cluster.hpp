// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The description of the ranks that are here, as a cluster file has it.

#include <vector>

#include "lib/ranks/comm/communicator.hpp"
#include "lib/work/cluster_files/cluster.hpp"
#include "lib/work/job/job.hpp"
#include "lib/work/resources/compute_place.hpp"

namespace pecia::settle {

/// Measures these ranks with all that a cluster file says (settle/measure/described_cluster.hpp), and keeps
/// it for later runs with such ranks, where anything is kept. Collective over `world`; every rank gets
/// the same.
///   places       by rank: where the ranks are
///   job          says whether ranks may share a GPU, and so how tensors travel
///   cache_bytes  of the caches of this rank's threads
cluster_files::Cluster measure_this_cluster(comm::Communicator& world,
                                            const std::vector<comm::RackServerGpu>& places,
                                            const job::Job& job,
                                            const resources::ComputePlace& place,
                                            int64_t cache_bytes);

}  // namespace pecia::settle
