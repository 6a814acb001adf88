// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_ops/blas_core.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "lib/base/core/error.hpp"
#include "lib/base/core/isa.hpp"

namespace pecia::bench {
namespace {

constexpr const char* variable = "OPENBLAS_CORETYPE";

bool is_avx512_core(std::string_view core) {
  return core == "SkylakeX" || core == "Cooperlake" || core == "Sapphirerapids";
}

using CoreName = char* (*)();

CoreName core_name_of_openblas() {
  return reinterpret_cast<CoreName>(::dlsym(RTLD_DEFAULT, "openblas_get_corename"));
}

}  // namespace

void choose_blas_core(char** argv) {
  // A variable set by the user, or by this function before, is respected: there is no second start.
  if (std::getenv(variable) != nullptr) return;
  const CoreName core_name = core_name_of_openblas();
  if (core_name == nullptr) return;
  const bool wanted = isa() != Isa::avx2;
  if (is_avx512_core(core_name()) == wanted) return;
  ::setenv(variable, wanted ? "SKYLAKEX" : "HASWELL", 1);
  ::execv("/proc/self/exe", argv);
  fail<SystemError>("could not start this program again with {} set: {}", variable,
                    std::strerror(errno));
}

std::string blas_name() {
  const CoreName core_name = core_name_of_openblas();
  return core_name == nullptr ? "BLAS" : std::string("OpenBLAS's ") + core_name() + " core";
}

}  // namespace pecia::bench
