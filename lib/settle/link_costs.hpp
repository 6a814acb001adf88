// SPDX-License-Identifier: Apache-2.0
#pragma once
/// By which figures routes between servers are chosen: of keys that several ranks of a server need
/// (parallel::KvRoutes), of gathers and scatters by NCCL (parallel::least_block_by_servers), and of
/// all gathers and sums of tensors over racks (parallel::least_block_by_racks).

#include "lib/model/attention/compute.hpp"
#include "lib/ranks/parallel/link_costs.hpp"
#include "lib/settle/facts.hpp"

namespace pecia::settle {

/// Measured now, or what an earlier start kept, where the replica has such routes to choose; else
/// zeros, which choose none. The reason goes into `resources`. `tensors`: the ranks of the replica, for
/// tensors where `compute` is. Collective over all ranks; the same on every rank.
parallel::LinkCosts link_costs(const Facts& facts, comm::Communicator& tensors,
                               const attention::Compute& compute, resources::Resources& resources);

}  // namespace pecia::settle
