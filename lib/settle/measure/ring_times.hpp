// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long attention of one layer takes where keys go round the ring, and where queries do: what the
/// fitted rule of the two is fitted to (ranks/parallel/fitted_rule.hpp). No weights are needed.

#include "lib/model/attention/compute.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/parallel/fitted_rule.hpp"
#include "lib/settle/measure/calibration.hpp"

namespace pecia::measure {

struct RingTimesLimits {
  double seconds = 10;  ///< that it should take; passes of the fewest keys are measured in any case
  int64_t most_keys = int64_t{1} << 15;  ///< of a pass, new and cached ones
};

/// Times passes of one sequence with new tokens from 1/64 of its keys to all of them, at 512 keys for
/// each rank, and then at 4 times the number before while `limits` allows it. A time is the
/// median of three passes, in turn with the other way, of the slowest rank while all rings do the
/// same. The ring has at least two ranks. `heads`: of a rank, with values of their own; `wire`: the
/// type in which queries and results travel. Collective over `world`, which is one or several rings;
/// every rank gets the same.
std::vector<parallel::RingTimes> measure_ring_times(comm::Communicator& world,
                                                    comm::Communicator& ring,
                                                    const attention::Compute& compute,
                                                    const AttentionShape& heads, DType wire,
                                                    const RingTimesLimits& limits = {});

}  // namespace pecia::measure
