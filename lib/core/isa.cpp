// SPDX-License-Identifier: Apache-2.0
#include "lib/core/isa.hpp"

#include <algorithm>
#include <cstdlib>

#include "lib/core/error.hpp"

namespace pecia {
namespace {

Isa best_of_machine() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    fail<Unsupported>(
        "this CPU has no AVX2 with FMA, which the CPU backend needs; choose a machine with it "
        "(Intel since Haswell, 2013; AMD since Zen, 2017)");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx512) return Isa::avx2;
  return __builtin_cpu_supports("avx512bf16") ? Isa::avx512_bf16 : Isa::avx512;
#else
  fail<Unsupported>("the CPU backend is written for x86-64");
#endif
}

const char* cap_of_environment() {
  const char* cap = std::getenv("PECIA_MAX_ISA");
  return cap != nullptr && *cap != '\0' ? cap : nullptr;
}

Isa resolve() {
  const Isa best = best_of_machine();
  const char* cap = cap_of_environment();
  if (cap == nullptr) return best;
  for (const Isa known : {Isa::avx2, Isa::avx512, Isa::avx512_bf16})
    if (name_of(known) == cap) return std::min(best, known);
  fail<InputError>("PECIA_MAX_ISA is '{}'; it may be avx2, avx512 or avx512_bf16", cap);
}

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_bf16:
      return "avx512_bf16";
  }
  return "?";
}

Isa isa() {
  static const Isa resolved = resolve();
  return resolved;
}

bool isa_is_capped() {
  return cap_of_environment() != nullptr;
}

}  // namespace pecia
