#pragma once
/// What this machine can do, measured now: the denominator of "share of peak".

#include "kernels/api/backend.hpp"

namespace pecia::runtime {

/// FLOP/s of an fp32 matrix product in cache by the stream's threads: the best of a few, some 20
/// ms.
double measure_peak_flops(kernels::Backend& backend, device::Stream& stream);

}  // namespace pecia::runtime
