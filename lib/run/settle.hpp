// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Settles the resources that depend on the loaded weights: memory, and the choices that are
/// measured.

#include "lib/engine/execute/replica.hpp"
#include "lib/run/load_weights.hpp"
#include "lib/run/read_inputs.hpp"
#include "lib/settle/measure/measured.hpp"

namespace pecia::run {

/// These resources, whose degrees and modes are decided, with KV cache and batch sizes for the free
/// memory. Call it before the cache is allocated. Collective over all ranks; every rank gets the
/// chief's.
resources::Resources with_memory(const Setup& setup, resources::Resources resources,
                                 const LoadedWeights& weights, RunInputs& inputs);

/// The rates of the replica's rings that an earlier start kept, or else measured now, where a choice
/// depends on them. `tensors`: the ranks of the replica, for tensors where `compute` is. Collective
/// over all ranks; the same on every rank.
parallel::RingRates settle_rates(const Setup& setup, comm::Communicator& tensors,
                                 const attention::Compute& compute);

/// Settles what sparse attention leaves to these rates. With a tuned file of a machine with other
/// rates the setting is chosen again, and then the memory is settled anew. Otherwise, where the job
/// leaves it open, it decides into how many micro-partitions levels are cut. The reason is added to
/// the resources'. Collective over all ranks. Throws InputError where a goal cannot be met with
/// these rates.
void settle_levels(Setup& setup, const LoadedWeights& weights, RunInputs& inputs,
                   const parallel::RingRates& rates);

/// What an earlier start has kept, or else a new measurement with these rates. Collective over all
/// ranks; the same on every rank.
measure::Measured settle_choices(Setup& setup, const parallel::RingRates& rates,
                                 execute::Replica& replica);

}  // namespace pecia::run
