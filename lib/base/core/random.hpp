// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Random numbers that are addressed, not consumed: each is a pure function of (key, index), so it
/// does not depend on batch, layout or restarts.

#include <array>
#include <cstdint>
#include <string_view>

namespace pecia {

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC'11).
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// Uniform in [0, 1) with 53 random bits.
double uniform(uint64_t key, uint64_t index);

/// FNV-1a with a final avalanche: mixes a text into `seed` and returns a stable 64-bit number.
uint64_t mix(uint64_t seed, std::string_view text);
uint64_t mix(uint64_t seed, uint64_t value);

}  // namespace pecia
