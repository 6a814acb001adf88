// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The description of the ranks that are here, as a cluster file has it.

#include <optional>
#include <vector>

#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/work/cluster_files/cluster.hpp"
#include "lib/work/job/job.hpp"
#include "lib/work/resources/compute_place.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::settle {

/// Times of keys and of queries round rings, and the rule that is fitted to them.
struct MeasuredRing {
  cluster_files::RingRule rule;
  std::vector<parallel::RingTimes> times;
};

/// Measures both ways with the heads of a job's model, within about ten seconds
/// (settle/measure/ring_times.hpp). `resources`: with degrees, of which cp is above 1, and the job's
/// kv_dtype; `ring`: this rank's, as part of `world`, for tensors where `place` is. Absent where keys
/// hold their values (latent attention): how these are attended differs between long and short passes.
/// Collective over `world`; every rank gets the same.
std::optional<MeasuredRing> measure_ring_rule(comm::Communicator& world, comm::Communicator& ring,
                                              const job::Job& job, const model::ModelConfig& config,
                                              const resources::Resources& resources,
                                              const resources::ComputePlace& place);

/// Measures these ranks with all that a cluster file says (settle/measure/described_cluster.hpp), and keeps
/// it for later runs with such ranks, where anything is kept. Collective over `world`; every rank gets
/// the same.
///   places       by rank: where the ranks are
///   job          says whether ranks may share a GPU, and so how tensors travel
///   cache_bytes  of the caches of this rank's threads
///   ring_rule    of measure_ring_rule; absent: the description has none
cluster_files::Cluster measure_this_cluster(
    comm::Communicator& world, const std::vector<comm::RackServerGpu>& places, const job::Job& job,
    const resources::ComputePlace& place, int64_t cache_bytes,
    const std::optional<cluster_files::RingRule>& ring_rule = {});

}  // namespace pecia::settle
