// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A fair BLAS to compare with.

#include <string>

namespace pecia::bench {

/// OpenBLAS picks its kernels when it is loaded, and a release older than the CPU picks those of an
/// older one: Debian's 0.3.21 runs AVX2 kernels on Zen 5, at half the speed (125 and 240 GFLOP/s
/// per core). If it has done so, or picked more than PECIA_MAX_ISA allows, this sets
/// OPENBLAS_CORETYPE and runs the program again. To be called first in main. Does nothing with
/// another BLAS, or if the variable is set.
void choose_blas_core(char** argv);

/// "OpenBLAS's SkylakeX core", or "BLAS" where it does not say what it is.
std::string blas_name();

}  // namespace pecia::bench
