// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rows of numbers stored as codes of a few bits. Scales stand beside the codes and say which
/// number a code means:
///
///     fp8    number = code · s              one scale s of a row
///     int8   number = code · s              one scale of a row; codes −127 … 127
///     int4   number = least + code · step   step and least of every group of 128 numbers of a row;
///                                           codes 0 … 15; the row's last group may be shorter
///
/// A group of int4 is one element of 64 bytes: 32 little-endian words of 16 bits. Number 32·k + w
/// of the group is in the bits 4·k … 4·k + 3 of word w.

#include <cstdint>

#include "lib/core/dtype.hpp"

namespace pecia {

/// Whether the numbers of this type are codes.
constexpr bool is_code(DType dtype) {
  return dtype == DType::fp8 || dtype == DType::int8 || dtype == DType::int4;
}

inline constexpr int64_t int4_group = 128;

/// How many numbers one element of a type holds.
constexpr int64_t numbers_of(DType dtype) {
  return dtype == DType::int4 ? int4_group : 1;
}

/// How many elements hold a row of `numbers` numbers.
constexpr int64_t row_elements(DType dtype, int64_t numbers) {
  return (numbers + numbers_of(dtype) - 1) / numbers_of(dtype);
}

/// How many fp32 scales a row of `numbers` numbers has: one s, or step and least of each group.
constexpr int64_t row_scales(DType dtype, int64_t numbers) {
  return dtype == DType::int4 ? 2 * row_elements(dtype, numbers) : is_code(dtype) ? 1 : 0;
}

/// The code of number `index` in a row of int4.
inline int int4_code(const void* row, int64_t index) {
  const int64_t word = index / int4_group * 32 + index % 32;
  const auto* const bytes = static_cast<const uint8_t*>(row) + 2 * word;
  const int shift = static_cast<int>(index % int4_group / 32) * 4;
  return (bytes[0] | bytes[1] << 8) >> shift & 15;
}

/// Number `index` of a row of any type except integers. `scales` are the row's scales, if its type
/// has scales.
float load_number(const void* row, DType dtype, const float* scales, int64_t index);

}  // namespace pecia
