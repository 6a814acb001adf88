// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which vector instructions this process may use: the machine's best, or less when capped.

#include <string_view>

namespace pecia {

enum class Isa { avx2, avx512, avx512_bf16 };

std::string_view name_of(Isa isa);

/// The best instruction set of this CPU, limited by the environment variable PECIA_MAX_ISA (avx2,
/// avx512, avx512_bf16). Throws InputError for another value of the variable, and Unsupported on a
/// CPU without AVX2. The answer is found once; every later call returns the same.
Isa isa();

/// Whether PECIA_MAX_ISA is set.
bool isa_is_capped();

}  // namespace pecia
