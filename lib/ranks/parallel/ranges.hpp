// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ranges of tokens. Positions and slots must never be confused.

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

/// The `count` positions begin, begin + stride, … A chunk of a prompt has stride 1. Generated
/// tokens that are dealt round-robin to N ranks mostly have stride N.
struct StridedRange {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t stride = 1;

  int64_t position(int64_t index) const { return begin + index * stride; }
  bool operator==(const StridedRange&) const = default;
};

/// Tokens [begin, begin + count) of a range.
struct IndexRun {
  int64_t begin = 0;
  int64_t count = 0;
  bool operator==(const IndexRun&) const = default;
};

}  // namespace pecia::parallel
