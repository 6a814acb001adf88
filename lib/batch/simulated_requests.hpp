// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A job's requests as a simulation of its batch takes them.

#include <vector>

#include "lib/batch/inputs.hpp"
#include "lib/schedule/simulate.hpp"

namespace pecia::batch {

/// The requests that can run, in the order in which a run takes them. They have arrival times where
/// the job replays them. Requests that share a beginning are one fork.
std::vector<schedule::SimulatedRequest> simulated_requests(const Inputs& inputs,
                                                           const job::Job::Batch& batch);

}  // namespace pecia::batch
