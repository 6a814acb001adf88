// SPDX-License-Identifier: Apache-2.0
#include "lib/base/core/isa.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "lib/base/core/error.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace pecia {
namespace {

struct Found {
  Isa isa;
  std::string why_no_amx;
};

#if defined(__x86_64__)
constexpr Isa isas[] = {Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx_bf16};
constexpr std::string_view names_of_isas = "avx2, avx512, avx512_bf16 or amx_bf16";
#else
constexpr Isa isas[] = {Isa::neon, Isa::neon_bf16};
constexpr std::string_view names_of_isas = "neon or neon_bf16";
#endif

const char* cap_of_environment() {
  const char* cap = std::getenv("PECIA_MAX_ISA");
  return cap != nullptr && *cap != '\0' ? cap : nullptr;
}

Isa most_allowed() {
  const char* cap = cap_of_environment();
  if (cap == nullptr) return *std::rbegin(isas);
  for (const Isa known : isas)
    if (name_of(known) == cap) return known;
  fail<InputError>("PECIA_MAX_ISA is '{}'; it may be {}", cap, names_of_isas);
}

#if defined(__x86_64__)
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

Found find() {
  const Isa allowed = most_allowed(), vectors = best_vectors();
  std::string why_not = why_no_amx(AmxFacts{cpu_has_amx(), vectors, allowed, ask_for_tiles});
  return {why_not.empty() ? Isa::amx_bf16 : std::min(allowed, vectors), std::move(why_not)};
}
#elif defined(__aarch64__)
Found find() {
  constexpr unsigned long bf16 = 1ul << 14;  // HWCAP2_BF16
  const bool has_bf16 = (getauxval(AT_HWCAP2) & bf16) != 0;
  return {std::min(most_allowed(), has_bf16 ? Isa::neon_bf16 : Isa::neon),
          "this CPU does not have it"};
}

/// The numbers of MIDR_EL1, which Linux shows to programs where it sets HWCAP_CPUID.
std::string brand_of(unsigned implementer, unsigned part) {
  constexpr struct {
    unsigned implementer, part;
    const char* name;
  } known[] = {{0x41, 0xd07, "Arm Cortex-A57"},  {0x41, 0xd08, "Arm Cortex-A72"},
               {0x41, 0xd0c, "Arm Neoverse N1"}, {0x41, 0xd40, "Arm Neoverse V1"},
               {0x41, 0xd49, "Arm Neoverse N2"}, {0x41, 0xd4f, "Arm Neoverse V2"},
               {0x41, 0xd84, "Arm Neoverse V3"}, {0x41, 0xd8e, "Arm Neoverse N3"},
               {0x46, 0x001, "Fujitsu A64FX"},   {0x48, 0xd01, "HiSilicon TaiShan v110"},
               {0xc0, 0xac3, "Ampere-1"},        {0xc0, 0xac4, "Ampere-1A"}};
  for (const auto& each : known)
    if (each.implementer == implementer && each.part == part) return each.name;
  return fmt::format("aarch64 CPU of implementer {:#x}, part {:#x}", implementer, part);
}
#else
Found find() {
  fail<Unsupported>("the CPU backend is written for x86-64 and aarch64");
}
#endif

const Found& found() {
  static const Found of_process = find();
  return of_process;
}

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::neon:
      return "neon";
    case Isa::neon_bf16:
      return "neon_bf16";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_bf16:
      return "avx512_bf16";
    case Isa::amx_bf16:
      return "amx_bf16";
  }
  return "?";
}

Isa isa() {
  return found().isa;
}

bool isa_is_capped() {
  return cap_of_environment() != nullptr;
}

std::string why_not(Isa needed) {
  if (isa() >= needed) return "";
  return isa_is_capped() ? "PECIA_MAX_ISA, or this CPU, does not have it"
                         : "this CPU does not have it";
}

std::string why_no_amx() {
  return found().why_no_amx;
}

std::string why_no_amx(const AmxFacts& facts) {
  if (!facts.cpu_has_it) return "this CPU does not have it";
  if (facts.vectors < Isa::avx512_bf16)
    return "this CPU has no AVX512-BF16, which its kernels use beside it";
  if (facts.most_allowed < Isa::amx_bf16) return "PECIA_MAX_ISA rules it out";
  return facts.ask();
}

bool cpu_has_amx() {
#if defined(__x86_64__)
  constexpr uint32_t amx_bf16 = 1u << 22, amx_tile = 1u << 24;  // of leaf 7 of CPUID
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (edx & amx_bf16) != 0 && (edx & amx_tile) != 0;
#else
  return false;
#endif
}

std::string cpu_brand() {
#if defined(__x86_64__)
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
#elif defined(__aarch64__)
  constexpr unsigned long shows_numbers = 1ul << 11;  // HWCAP_CPUID
  if ((getauxval(AT_HWCAP) & shows_numbers) == 0) return "unnamed CPU";
  uint64_t midr = 0;
  asm("mrs %0, midr_el1" : "=r"(midr));
  return brand_of(midr >> 24 & 0xff, midr >> 4 & 0xfff);
#else
  return "unnamed CPU";
#endif
}

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // waits some 40 cycles, where `yield` waits for none on most cores
#endif
}

}  // namespace pecia
