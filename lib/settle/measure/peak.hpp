// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The most that the hardware gives, measured by all ranks together: the denominator of "share of
/// peak". Automatic choices use the speed of our own products instead (product_rates.hpp).

#include "lib/base/report/run_report.hpp"
#include "lib/model/attention/compute.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::measure {

/// Measures FLOP/s and B/s. FLOP/s: a CPU runs its best instructions for products with weights of
/// this type, in a loop on registers alone; a GPU computes a large product of random numbers, for
/// about 100 ms. B/s: a CPU reads memory that the threads' caches (`cache_bytes`) do not hold; a
/// GPU copies its own memory, and bytes read and written add up. This takes about 100 ms, on crowded
/// cores up to 300 ms and a few waits for other ranks. Meanwhile a CPU takes at most an eighth of the
/// memory that is free on its host, all ranks together. Collective over `world`; every rank gets the
/// same, apart from the names.
report::PeakReport measure_peak(comm::Communicator& world, const attention::Compute& compute,
                                DType weights, int64_t cache_bytes);

/// Measures the FLOP/s again after the run, into `peak.end`, since clocks and neighbours may have
/// changed. GPUs are left out, as the run may have filled their memory. Collective over `world`.
void measure_peak_again(comm::Communicator& world, const attention::Compute& compute, DType weights,
                        report::PeakReport& peak);

}  // namespace pecia::measure
