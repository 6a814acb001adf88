// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How many turns of a run's results are done, failed and open.

#include "lib/files/results/results.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::batch {

/// Turns by state.
struct TurnCounts {
  int64_t open = 0, partial = 0, done = 0, failed = 0;

  int64_t unfinished() const { return open + partial; }
};

TurnCounts count_turns(const io::ResultsFile& results);

/// Counts the turns; every rank of `world` gets the same. Collective. `results` is given on one
/// rank and null on the others.
TurnCounts count_turns(const io::ResultsFile* results, comm::Communicator& world);

}  // namespace pecia::batch
