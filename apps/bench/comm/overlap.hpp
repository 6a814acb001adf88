// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How much of a ring step's transfer is hidden behind computing.

#include "kernels/api/backend.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::bench {

enum class Polling { off, on };

struct Overlap {
  double compute_s = 0;  ///< the work alone
  double wait_s = 0;     ///< wait for the transfer after the work is done
  double total_s = 0;    ///< transfer and work together
};

/// Starts a ring step of `bytes`, computes for about `compute_s`, then waits. Medians over `runs`
/// of the slowest rank's seconds. With polling the stream makes the transfer progress. Collective.
Overlap measure_overlap(comm::Communicator& world, kernels::Backend& backend, int threads,
                        int64_t bytes, double compute_s, Polling polling, int runs);

}  // namespace pecia::bench
