// SPDX-License-Identifier: Apache-2.0
#include "lib/base/core/isa.hpp"

#include <sys/auxv.h>

#include <algorithm>
#include <cstdint>

#include "lib/base/core/error.hpp"
#include "lib/base/core/isa_of_architecture.hpp"

namespace pecia {
namespace {

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

}  // namespace

std::span<const Isa> isas_of_architecture() {
  static constexpr Isa isas[] = {Isa::neon, Isa::neon_bf16};
  return isas;
}

FoundIsa find_isa(Isa most_allowed) {
  constexpr unsigned long bf16 = 1ul << 14;  // HWCAP2_BF16
  const bool has_bf16 = (getauxval(AT_HWCAP2) & bf16) != 0;
  return {std::min(most_allowed, has_bf16 ? Isa::neon_bf16 : Isa::neon),
          "this CPU does not have it"};
}

bool cpu_has_amx() {
  return false;
}

std::string cpu_brand() {
  constexpr unsigned long shows_numbers = 1ul << 11;  // HWCAP_CPUID
  if ((getauxval(AT_HWCAP) & shows_numbers) == 0) return "unnamed CPU";
  uint64_t midr = 0;
  asm("mrs %0, midr_el1" : "=r"(midr));
  return brand_of(midr >> 24 & 0xff, midr >> 4 & 0xfff);
}

void pause_core() {
  asm volatile("isb");  // waits some 40 cycles, where `yield` waits for none on most cores
}

}  // namespace pecia
