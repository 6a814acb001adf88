// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Prompts of one instruction end with the same tokens, whatever document stands before them.

#include <algorithm>
#include <cstdint>
#include <span>

#include "lib/base/core/random.hpp"

namespace pecia::schedule {

/// A hash of the last tokens of a prompt.
inline uint64_t instruction_of(std::span<const int32_t> prompt) {
  constexpr size_t telling_tokens = 24;
  uint64_t hash = 0;
  for (const int32_t token : prompt.last(std::min(telling_tokens, prompt.size())))
    hash = mix(hash, static_cast<uint64_t>(token));
  return hash;
}

}  // namespace pecia::schedule
