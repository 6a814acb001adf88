// SPDX-License-Identifier: Apache-2.0
#include "lib/base/core/isa.hpp"

#include <cstdlib>

#include "lib/base/core/error.hpp"
#include "lib/base/core/isa_of_architecture.hpp"

namespace pecia {
namespace {

const char* cap_of_environment() {
  const char* cap = std::getenv("PECIA_MAX_ISA");
  return cap != nullptr && *cap != '\0' ? cap : nullptr;
}

Isa most_allowed() {
  const std::span<const Isa> isas = isas_of_architecture();
  const char* cap = cap_of_environment();
  if (cap == nullptr) return isas.back();
  std::string names;
  for (const Isa known : isas) {
    if (name_of(known) == cap) return known;
    if (!names.empty()) names += known == isas.back() ? " or " : ", ";
    names += name_of(known);
  }
  fail<InputError>("PECIA_MAX_ISA is '{}'; it may be {}", cap, names);
}

const FoundIsa& found() {
  static const FoundIsa of_process = find_isa(most_allowed());
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

}  // namespace pecia
