#pragma once
/// What this machine can do at best, measured in the same run as the ops.

namespace pecia::bench {

struct Floors {
  double flops;      ///< FLOP/s of the BLAS's sgemm of 2048³ on the threads given
  double bandwidth;  ///< B/s of reading an array far larger than the caches
};

Floors measure_floors(int num_threads, int runs);

}  // namespace pecia::bench
