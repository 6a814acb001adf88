// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A job's requests as a simulation of its batch takes them.

#include <functional>
#include <vector>

#include "lib/batch/inputs.hpp"
#include "lib/schedule/simulate.hpp"

namespace pecia::batch {

/// Whether a turn, by its row in the results, is still to be answered.
using IsOpen = std::function<bool(int64_t row)>;

/// The requests that can run, in the order in which a run takes them. They have arrival times where
/// the job replays them. With `is_open`, those that have a turn left, with all their turns: earlier
/// turns are read again.
std::vector<schedule::SimulatedRequest> simulated_requests(const Inputs& inputs,
                                                           const job::Job::Batch& batch,
                                                           const IsOpen& is_open = {});

}  // namespace pecia::batch
