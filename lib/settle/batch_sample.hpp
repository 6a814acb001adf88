// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A part of a batch that stands for all of it in a simulation.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lib/engine/schedule/simulate.hpp"

namespace pecia::settle {

/// At most `most` of these requests, for a simulation of one of `replicas` replicas: every n-th, or,
/// where they arrive one by one, the first ones of those that one replica has.
std::vector<schedule::SimulatedRequest> part_of_a_replica(
    const std::vector<schedule::SimulatedRequest>& all, int replicas, size_t most);

/// The indices of these requests among `count` requests.
std::vector<size_t> part_of_a_replica(size_t count, bool arrive, int replicas, size_t most);

/// How many of these requests have about `turns` turns together; at least one.
size_t requests_of_turns(const std::vector<schedule::SimulatedRequest>& all, int64_t turns);

}  // namespace pecia::settle
