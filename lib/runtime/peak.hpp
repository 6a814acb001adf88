#pragma once
/// What this machine can do, measured now: the denominator of "share of peak",
/// and what automatic choices count with.

#include <functional>

#include "lib/context/compute.hpp"

namespace pecia::runtime {

/// Seconds that some work took.
using Stopwatch = std::function<double(const std::function<void()>& work)>;
double own_seconds(const std::function<void()>& work);

/// FLOP/s of a matrix product: of fp32 in cache by the stream's threads, on a GPU large and with
/// weights of this type. The mean over some 20 ms, so that ranks which measure at the same time and
/// share cores do not each count all of them.
double measure_peak_flops(const context::Compute& compute, DType weights,
                          const Stopwatch& seconds_of = own_seconds);

/// B/s at which a product with one row reads weights of this type that no cache holds, by the
/// stream's threads; some 30 ms.
double measure_read_bandwidth(const context::Compute& compute, DType weights,
                              const Stopwatch& seconds_of = own_seconds);

}  // namespace pecia::runtime
