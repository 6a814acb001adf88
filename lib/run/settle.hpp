// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What of the resources is settled once the weights are there: memory, and the choices that are
/// measured.

#include "lib/execute/replica_rank.hpp"
#include "lib/measure/measured.hpp"
#include "lib/run/load_weights.hpp"
#include "lib/run/read_inputs.hpp"

namespace pecia::run {

/// KV cache and batch sizes, of the memory that is left. Collective over all ranks.
void settle_memory(Setup& setup, const LoadedWeights& weights, RunInputs& inputs);

/// What an earlier start into the same results measured, else measured now. Collective over all
/// ranks; the same on every one.
measure::Measured settle_choices(Setup& setup, execute::ReplicaRank& rank);

}  // namespace pecia::run
