// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the routes of keys between servers are chosen by (parallel::KvRoutes).

#include "lib/model/attention/compute.hpp"
#include "lib/ranks/parallel/kv_routes.hpp"
#include "lib/settle/facts.hpp"

namespace pecia::settle {

/// Measured now where heads are exchanged between servers and several ranks of a server need the same
/// KV head; else zeros, with which keys go directly. The reason goes into `resources`. `tensors`: the
/// ranks of the replica, for tensors where `compute` is. Collective over all ranks; the same on every
/// rank. No results depend on it.
parallel::KvLinkCosts kv_costs(const Facts& facts, comm::Communicator& tensors,
                               const attention::Compute& compute, resources::Resources& resources);

}  // namespace pecia::settle
