// SPDX-License-Identifier: Apache-2.0
/// In place of blas_product.cpp in a build with CUDA, which is linked to no BLAS: the bundle for a
/// GPU machine would be a third larger.

#include "apps/bench_ops/floors.hpp"
#include "lib/base/core/error.hpp"

namespace pecia::bench {

double sgemm_flops(int, int) {
  fail<Unsupported>("a build with CUDA has no BLAS to compare the CPU's products with");
}

}  // namespace pecia::bench
