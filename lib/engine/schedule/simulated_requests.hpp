// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A job's requests as a simulation of its batch takes them.

#include <functional>
#include <vector>

#include "lib/engine/schedule/simulate.hpp"
#include "lib/work/batch/joined_request.hpp"

namespace pecia::schedule {

/// Whether a turn, by its row in the results, is still to be answered.
using IsOpen = std::function<bool(int64_t row)>;

/// The requests that can run in their groups, in the order in which a run takes these. With
/// `is_open`, those that have a turn left.
std::vector<batch::RequestGroup> runnable_groups(const batch::Inputs& inputs,
                                                 const job::Job::Batch& batch,
                                                 const IsOpen& is_open = {});

/// A simulated request for each of these groups, in their order. They have arrival times where the
/// job replays them. Requests that share a beginning are one fork. Requests have all their turns:
/// earlier turns are read again.
std::vector<SimulatedRequest> simulated_requests(const batch::Inputs& inputs,
                                                 const job::Job::Batch& batch,
                                                 const IsOpen& is_open = {});

}  // namespace pecia::schedule
