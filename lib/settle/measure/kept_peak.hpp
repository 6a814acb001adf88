// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The peak of these ranks' hardware (peak.hpp), in the user's cache. Losing it costs only a new
/// measurement.

#include "lib/settle/measure/peak.hpp"

namespace pecia::measure {

/// The peak that an earlier run of ranks like these has kept within the last week, else a new
/// measurement. Collective over `world`; every rank gets the same.
report::PeakReport peak_of_ranks(comm::Communicator& world, const attention::Compute& compute,
                                 DType weights, int64_t cache_bytes);

/// Measures the FLOP/s again after the run, into `peak.end`, since clocks and neighbours may have
/// changed, and keeps the better of both for later runs. Does nothing where `peak` was kept by an
/// earlier run. Collective over `world`. Throws SystemError on rank 0 where the cache cannot be
/// written.
void settle_peak(comm::Communicator& world, const attention::Compute& compute, DType weights,
                 report::PeakReport& peak);

}  // namespace pecia::measure
