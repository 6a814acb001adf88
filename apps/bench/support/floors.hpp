// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The best that the machine can do, measured by all ranks at the same time and in the same run as
/// the benchmark.

#include "lib/base/report/run_report.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/work/resources/compute_place.hpp"

namespace pecia::bench {

/// Rates of all ranks together.
struct Floors {
  /// FLOP/s of the backend's own matrix product: in fp32 and in cache, or on a GPU a large one.
  double flops = 0;
  /// B/s of reading 256 MiB per rank, far more than the caches hold. On a GPU, B/s of copying, with
  /// bytes read and written added.
  double read_bandwidth = 0;
  /// The hardware's peak; the backend's product reaches a share of it.
  report::PeakReport peak = {};

  /// What limits work of these bytes and FLOPs, and the share of that floor that it reaches when it
  /// takes `seconds`.
  struct Reached {
    double share;
    const char* bound_by;
  };
  Reached reached(double bytes, double flops_done, double seconds) const;
};

/// B/s of reading 256 MiB of the host's memory with the stream's threads; the best of a few runs.
double read_bandwidth(const device::Stream& stream);

/// The best of a few runs on each rank, with the stream's threads. On GPUs the products have
/// weights of this type. Collective.
Floors measure_floors(comm::Communicator& world, const resources::ComputePlace& place,
                      DType weights);

}  // namespace pecia::bench
