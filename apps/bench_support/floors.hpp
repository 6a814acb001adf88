// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the machine can do at best, measured by all ranks at the same time in the run that it
/// judges.

#include "lib/comm/communicator.hpp"
#include "lib/report/run_report.hpp"
#include "lib/resources/compute_place.hpp"

namespace pecia::bench {

/// Of all ranks together.
struct Floors {
  /// FLOP/s of the backend's own matrix product: fp32 in cache, on a GPU a large one.
  double flops = 0;
  /// B/s of reading 256 MiB per rank, far more than the caches hold; on a GPU of copying, what is
  /// read and what is written together.
  double read_bandwidth = 0;
  /// What the hardware gives: the backend's product is a share of it.
  report::PeakReport peak = {};
};

/// The best of a few runs on each rank, with the stream's threads; on GPUs of products with weights
/// of this type. Collective.
Floors measure_floors(comm::Communicator& world, const resources::ComputePlace& place,
                      DType weights);

}  // namespace pecia::bench
