// SPDX-License-Identifier: Apache-2.0
#include "lib/base/core/isa.hpp"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "lib/base/core/error.hpp"
#include "lib/base/core/isa_of_architecture.hpp"

namespace pecia {
namespace {

Isa best_vectors() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    fail<Unsupported>(
        "this CPU has no AVX2 with FMA, which the CPU backend needs; choose a machine with it "
        "(Intel since Haswell, 2013; AMD since Zen, 2017)");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx512) return Isa::avx2;
  // Cooper Lake (2020) has the first of these alone, and counts as avx512.
  const bool bf16 = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi") &&
                    __builtin_cpu_supports("bmi2");
  return bf16 ? Isa::avx512_bf16 : Isa::avx512;
}

/// Linux gives a process the state of tiles only when it asks. Threads that exist or begin later
/// have the permission, too.
std::string ask_for_tiles() {
  constexpr int64_t get_permission = 0x1022, request_permission = 0x1023;  // ARCH_*_XCOMP_PERM
  constexpr int64_t tile_data = 18;
  uint64_t allowed = 0;
  if (syscall(SYS_arch_prctl, request_permission, tile_data) != 0 ||
      syscall(SYS_arch_prctl, get_permission, &allowed) != 0)
    return fmt::format("the operating system refuses it: {}", std::strerror(errno));
  return (allowed >> tile_data & 1) != 0 ? "" : "the operating system does not allow it";
}

}  // namespace

std::span<const Isa> isas_of_architecture() {
  static constexpr Isa isas[] = {Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx_bf16};
  return isas;
}

FoundIsa find_isa(Isa most_allowed) {
  const Isa vectors = best_vectors();
  std::string why_not = why_no_amx(AmxFacts{cpu_has_amx(), vectors, most_allowed, ask_for_tiles});
  return {why_not.empty() ? Isa::amx_bf16 : std::min(most_allowed, vectors), std::move(why_not)};
}

bool cpu_has_amx() {
  constexpr uint32_t amx_bf16 = 1u << 22, amx_tile = 1u << 24;  // of leaf 7 of CPUID
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (edx & amx_bf16) != 0 && (edx & amx_tile) != 0;
}

std::string cpu_brand() {
  constexpr unsigned first = 0x80000002, last = 0x80000004;  // leaves of 16 characters each
  uint32_t text[12] = {};
  for (unsigned leaf = first; leaf <= last; ++leaf) {
    uint32_t* const to = text + 4 * (leaf - first);
    if (__get_cpuid(leaf, to, to + 1, to + 2, to + 3) == 0) return "unnamed CPU";
  }
  const auto* const begin = reinterpret_cast<const char*>(text);
  const std::string brand(begin, strnlen(begin, sizeof text));
  const size_t start = brand.find_first_not_of(' ');
  return start == std::string::npos ? "unnamed CPU" : brand.substr(start);
}

void pause_core() {
  __builtin_ia32_pause();
}

}  // namespace pecia
