// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Two kinds of token positions, which must never be confused.

#include <cstdint>

namespace pecia::parallel {

/// Positions [begin, end) of one sequence. Every rank counts them from the sequence's first token.
struct GlobalRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const GlobalRange&) const = default;
};

/// Slots [begin, end) of one rank's KV cache.
struct SlotRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const SlotRange&) const = default;
};

}  // namespace pecia::parallel
