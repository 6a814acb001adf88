// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the hardware gives at most, measured by all ranks together: the denominator of "share of
/// peak". Automatic choices count with our own products' speed instead (product_rates.hpp).

#include "lib/comm/communicator.hpp"
#include "lib/context/compute.hpp"
#include "lib/report/run_report.hpp"

namespace pecia::measure {

/// FLOP/s of the best instructions that the CPU has for products with weights of this type, in a
/// loop that touches registers alone; on a GPU of a large product of random numbers, some 100 ms.
/// B/s of reading memory that the caches of these threads (`cache_bytes`) do not hold, on a GPU of
/// copying its own, read and written bytes together; some 100 ms with the memory that it takes
/// meanwhile. Collective over `world`; every rank gets the same but for the names.
report::PeakReport measure_peak(comm::Communicator& world, const context::Compute& compute,
                                DType weights, int64_t cache_bytes);

/// The FLOP/s once more, after the run, into `peak.end`: clocks and neighbours may have changed.
/// Not on GPUs, whose memory the run may have filled. Collective over `world`.
void measure_peak_again(comm::Communicator& world, const context::Compute& compute, DType weights,
                        report::PeakReport& peak);

}  // namespace pecia::measure
