// SPDX-License-Identifier: Apache-2.0
#include <omp.h>

#include <cstdint>
#include <vector>

#include "apps/bench_ops/floors.hpp"
#include "apps/bench_ops/timing.hpp"
#include "lib/base/core/error.hpp"

// Every BLAS has this function, whatever its C headers are.
extern "C" void sgemm_(const char* trans_a, const char* trans_b, const int* m, const int* n,
                       const int* k, const float* alpha, const float* a, const int* lda,
                       const float* b, const int* ldb, const float* beta, float* c, const int* ldc);

namespace pecia::bench {

double sgemm_flops(int num_threads, int runs) {
  const int n = 2048;
  const float one = 1, zero = 0;
  const std::vector<float> a(int64_t{n} * n, 0.5f), b(int64_t{n} * n, 0.25f);
  std::vector<float> c(int64_t{n} * n);
  omp_set_num_threads(num_threads);
  const double seconds = best_seconds(runs, [&] {
    sgemm_("T", "N", &n, &n, &n, &one, a.data(), &n, b.data(), &n, &zero, c.data(), &n);
  });
  PECIA_CHECK(c.front() == 256.0f, "sgemm gave {}, expected 256", c.front());
  return 2.0 * n * n * n / seconds;
}

}  // namespace pecia::bench
