// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Makes OpenBLAS a fair competitor.

#include <string>

namespace pecia::bench {

/// OpenBLAS picks its kernels when it is loaded, and a release older than the CPU picks kernels for
/// an older one: Debian's 0.3.21 runs AVX2 kernels on Zen 5, at half the speed (125 and 240 GFLOP/s
/// per core). If it has done so, or picked more than PECIA_MAX_ISA allows, this function sets
/// OPENBLAS_CORETYPE and starts the program again. Call it first in main. It does nothing with
/// another BLAS, or if the variable is set.
void choose_blas_core(char** argv);

/// "OpenBLAS's SkylakeX core", or "BLAS" for a library without such information.
std::string blas_name();

}  // namespace pecia::bench
