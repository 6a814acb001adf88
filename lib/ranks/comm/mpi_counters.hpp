// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shared counters in a window of MPI. Only lib/ranks/comm includes this header, because it includes
/// <mpi.h>.

#include <mpi.h>

#include <memory>

#include "lib/ranks/comm/communicator.hpp"

namespace pecia::comm {

/// Collective over `comm`. Rank 0 holds the numbers. MPI makes the window in a call that blocks.
std::unique_ptr<SharedCounters> make_mpi_counters(MPI_Comm comm, int64_t count);

}  // namespace pecia::comm
