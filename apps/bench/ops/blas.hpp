// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A BLAS to compare with.

#include <string>

namespace pecia::bench::ops {

class Blas {
 public:
  /// Loads the BLAS that the build found, for this number of threads. Throws Unsupported where there
  /// is none.
  ///
  /// OpenBLAS picks its kernels when it is loaded, and a release older than the CPU picks kernels
  /// for an older one: Debian's 0.3.21 runs AVX2 kernels on Zen 5, at half the speed (125 and 240
  /// GFLOP/s per core). If it has done so, or picked more than PECIA_MAX_ISA allows, it is loaded
  /// again with OPENBLAS_CORETYPE set, unless the user has set that.
  explicit Blas(int num_threads);

  /// "OpenBLAS's SkylakeX core", or "BLAS" for a library without such information.
  std::string name() const;

  /// FLOP/s of sgemm of 2048³; the best run counts.
  double sgemm_flops(int runs) const;

 private:
  void* library_;
};

}  // namespace pecia::bench::ops
