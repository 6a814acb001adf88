// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which instructions this process may use: the machine's best, or less when capped.

#include <functional>
#include <string>
#include <string_view>

namespace pecia {

/// Each has all before it of its architecture. aarch64 comes before x86-64.
/// neon_bf16: products and conversions of bf16 (FEAT_BF16). amx_bf16: tiles of bf16 beside the
/// vectors of avx512_bf16.
enum class Isa { neon, neon_bf16, avx2, avx512, avx512_bf16, amx_bf16 };

std::string_view name_of(Isa isa);

/// The best instruction set of this CPU, limited by the environment variable PECIA_MAX_ISA (avx2,
/// avx512, avx512_bf16, amx_bf16; on aarch64 neon, neon_bf16). Throws InputError for another value of
/// the variable, and Unsupported on an x86-64 CPU without AVX2. The answer is found once; every later
/// call returns the same. Where the CPU has AMX and nothing caps it, the first call asks the operating
/// system for the permission to use tiles, which holds for the whole process.
Isa isa();

/// Whether PECIA_MAX_ISA is set.
bool isa_is_capped();

/// Says why isa() is below `needed`: the CPU lacks it, or PECIA_MAX_ISA rules it out; "" if it is not.
std::string why_not(Isa needed);

/// Says why isa() is not amx_bf16: the CPU lacks it, PECIA_MAX_ISA rules it out, or the operating
/// system refuses it; "" if isa() is amx_bf16.
std::string why_no_amx();

/// What decides whether a process has AMX.
struct AmxFacts {
  bool cpu_has_it = false;           ///< its tiles, and products of bf16 on them
  Isa vectors = Isa::avx2;           ///< the CPU's best beside it
  Isa most_allowed = Isa::amx_bf16;  ///< by PECIA_MAX_ISA
  std::function<std::string()> ask =
      {};  ///< asks the operating system for tiles; "" if it gives them
};

/// The rule of the function above. It asks the operating system only if nothing else is in the way.
std::string why_no_amx(const AmxFacts& facts);

/// Tells whether this CPU has AMX with bf16, used or not.
bool cpu_has_amx();

/// The CPU's name of itself, such as "AMD EPYC 9654 96-Core Processor", or "Arm Neoverse V2" by the
/// numbers of its identification.
std::string cpu_brand();

/// Tells the core that this thread waits in a loop.
void pause_core();

}  // namespace pecia
