// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The best that this machine can do, measured in the same run as the ops.

#include "apps/bench/ops/cases.hpp"

namespace pecia::bench::ops {

struct OpFloors {
  double flops;      ///< FLOP/s
  double bandwidth;  ///< B/s
};

/// FLOP/s of the backend's own product of 2048³ with weights of bf16; the best run counts.
double measure_product(const Place& place, int runs);

/// Measures the floor of products that other benchmarks and runs have too
/// (measure::measure_product_flops): 8192³ of random numbers of bf16, without any conversion. Also
/// measures a copy of 2 GiB within the device (bytes read and written).
OpFloors measure_gpu_floors(const Place& place, int runs);

}  // namespace pecia::bench::ops
