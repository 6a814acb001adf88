#pragma once
/// What the machine can do at best, measured by all ranks at the same time in the run that it
/// judges.

#include "lib/comm/communicator.hpp"
#include "lib/context/compute.hpp"

namespace pecia::bench {

/// Of all ranks together.
struct Floors {
  double flops = 0;           ///< FLOP/s of the backend's own fp32 matrix product, in cache
  double read_bandwidth = 0;  ///< B/s of reading 256 MiB per rank, far more than the caches hold
};

/// The best of a few runs on each rank, with the stream's threads. Collective.
Floors measure_floors(comm::Communicator& world, const context::Compute& compute);

}  // namespace pecia::bench
