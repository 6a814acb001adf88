// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What it costs that a program writes memory for the first time.

#include "lib/model/attention/compute.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::measure {

/// B/s at which each rank, with all its threads, gets pages that it never wrote, while all ranks do the
/// same: those of the slowest rank. The system clears them. In a virtual machine its host may have to
/// find them first: huge pages then came at 0.4 GB/s to each thread, and at 11 GB/s where the guest
/// still had them from other programs. Writes up to `most_bytes` per rank, and for a quarter of a second
/// at most. On CPUs. Collective over `world`; every rank gets the same.
double first_touch_rate(comm::Communicator& world, const attention::Compute& compute,
                        int64_t most_bytes);

}  // namespace pecia::measure
