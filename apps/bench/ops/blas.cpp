// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ops/blas.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "apps/bench/ops/timing.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/isa.hpp"

namespace pecia::bench::ops {
namespace {

constexpr const char* core_variable = "OPENBLAS_CORETYPE";

// Every BLAS has this function, whatever its C headers are.
using Sgemm = void(const char* trans_a, const char* trans_b, const int* m, const int* n,
                   const int* k, const float* alpha, const float* a, const int* lda, const float* b,
                   const int* ldb, const float* beta, float* c, const int* ldc);

/// Null where the library has no such function.
template <typename Function>
Function* function(void* library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

void* load() {
#ifdef PECIA_BLAS
  void* const library = ::dlopen(PECIA_BLAS, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail<SystemError>("the BLAS to compare with: {}", ::dlerror());
  return library;
#else
  fail<Unsupported>(
      "this build found no BLAS to compare products with; time those of bf16 (--compute auto), or "
      "configure a build where a BLAS is installed");
#endif
}

/// "" for a library that does not say it.
std::string core_of(void* library) {
  auto* const core = function<char*()>(library, "openblas_get_corename");
  return core == nullptr ? "" : core();
}

bool is_avx512_core(std::string_view core) {
  return core == "SkylakeX" || core == "Cooperlake" || core == "Sapphirerapids";
}

}  // namespace

Blas::Blas(int num_threads) {
  ::setenv("OMP_NUM_THREADS", std::to_string(num_threads).c_str(), 1);
  library_ = load();
  const std::string core = core_of(library_);
  const bool wanted = isa() != Isa::avx2;
  if (!core.empty() && is_avx512_core(core) != wanted && std::getenv(core_variable) == nullptr) {
    ::dlclose(library_);
    ::setenv(core_variable, wanted ? "SKYLAKEX" : "HASWELL", 1);
    library_ = load();
  }
}

std::string Blas::name() const {
  const std::string core = core_of(library_);
  return core.empty() ? "BLAS" : "OpenBLAS's " + core + " core";
}

double Blas::sgemm_flops(int runs) const {
  auto* const sgemm = function<Sgemm>(library_, "sgemm_");
  PECIA_CHECK(sgemm != nullptr, "the BLAS has no sgemm_");
  const int n = 2048;
  const float one = 1, zero = 0;
  const std::vector<float> a(int64_t{n} * n, 0.5f), b(int64_t{n} * n, 0.25f);
  std::vector<float> c(int64_t{n} * n);
  const double seconds = best_seconds(runs, [&] {
    sgemm("T", "N", &n, &n, &n, &one, a.data(), &n, b.data(), &n, &zero, c.data(), &n);
  });
  PECIA_CHECK(c.front() == 256.0f, "sgemm gave {}, expected 256", c.front());
  return 2.0 * n * n * n / seconds;
}

}  // namespace pecia::bench::ops
