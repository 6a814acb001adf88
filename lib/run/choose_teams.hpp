// SPDX-License-Identifier: Apache-2.0
#pragma once
/// parallel.cp: auto, where a replica has several instances: are they one ring, or teams that
/// change?

#include "lib/engine/schedule/simulate.hpp"
#include "lib/ranks/parallel/ring_rule.hpp"
#include "lib/run/load_weights.hpp"
#include "lib/run/read_inputs.hpp"

namespace pecia::run {

/// The setup's resources, made elastic where parallel.cp is auto, no mode of the ring is named, and
/// the batch is expected to end more than 5 % sooner that way. Where arrivals are replayed, the mean
/// time to the first token decides instead. The reasons say what was expected. A continued run
/// keeps what it chose first, on the same degrees. This is the rule where no times are foreseen
/// (choose_layout.hpp).
///
/// The expectation comes from playing a part of the batch both ways (engine/schedule/simulate.hpp). The
/// times of passes follow from `product_flops` (of all ranks) and from the ring's `rates`. Call it
/// when the memory of the ring is settled. Collective over all ranks, with the same result on each.
resources::Resources choose_teams(const Setup& setup, const LoadedWeights& weights,
                                  RunInputs& inputs, const parallel::RingRates& rates,
                                  double product_flops);

/// At most `most` of these requests, for a simulation of one of `replicas` replicas: every n-th, or,
/// where they arrive one by one, the first ones of those that one replica has.
std::vector<schedule::SimulatedRequest> part_of_a_replica(
    const std::vector<schedule::SimulatedRequest>& all, int replicas, size_t most);

/// The indices of these requests among `count` requests.
std::vector<size_t> part_of_a_replica(size_t count, bool arrive, int replicas, size_t most);

/// How many of these requests have about `turns` turns together; at least one.
size_t requests_of_turns(const std::vector<schedule::SimulatedRequest>& all, int64_t turns);

}  // namespace pecia::run
