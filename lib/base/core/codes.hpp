// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rows of numbers stored as codes of a few bits. Scales stand beside the codes and say which
/// number a code means:
///
///     fp8    number = code · s              one scale s of a row
///     int8   number = code · s              one scale of a row; codes −127 … 127
///     int4   number = least + code · step   step and least of every group of 128 numbers of a row;
///                                           codes 0 … 15; the row's last group may be shorter.
///                                           Or of every 64 or 32: see int4_shared_by
///     mxfp4  number = FP4[code] · 2^(s−127) one byte s for every block of 32 numbers of a row
///     nvfp4  number = FP4[code] · s         one s of E4M3 for every block of 16 numbers of a row
///
/// A group of int4 is one element of 64 bytes: 32 little-endian words of 16 bits. Number 32·k + w
/// of the group is in the bits 4·k … 4·k + 3 of word w.
///
/// A block of mxfp4 is one element of 16 bytes. Byte b has number 2·b in its low half and 2·b + 1 in
/// its high half. FP4 = 0 ½ 1 1½ 2 3 4 6, and then the same with a minus. The numbers are exact in
/// bf16 while s is at least 2; s is at most 252, so that none overflows.
///
/// A block of nvfp4 is one element of 8 bytes, with the same order and the same FP4. The numbers are
/// exact in bf16. A matrix of nvfp4 also has a factor in fp32, which products multiply by
/// (LinearArgs::weight_factor).

#include <cstdint>

#include "lib/base/core/dtype.hpp"

namespace pecia {

/// Whether the numbers of this type are codes.
constexpr bool is_code(DType dtype) {
  return dtype == DType::fp8 || dtype == DType::int8 || dtype == DType::int4 ||
         dtype == DType::mxfp4 || dtype == DType::nvfp4;
}

inline constexpr int64_t int4_group = 128;
inline constexpr int64_t mxfp4_block = 32;
inline constexpr int most_mxfp4_scale = 252;
inline constexpr int64_t nvfp4_block = 16;

/// How many numbers one element of a type holds.
constexpr int64_t numbers_of(DType dtype) {
  return dtype == DType::int4    ? int4_group
         : dtype == DType::mxfp4 ? mxfp4_block
         : dtype == DType::nvfp4 ? nvfp4_block
                                 : 1;
}

/// How many elements hold a row of `numbers` numbers.
constexpr int64_t row_elements(DType dtype, int64_t numbers) {
  return (numbers + numbers_of(dtype) - 1) / numbers_of(dtype);
}

/// How many numbers of a row of int4 share step and least: 128, 64 or 32. A row that has `scales`
/// scales for its `elements` elements of 128 codes says so by their number.
constexpr int64_t int4_shared_by(int64_t scales, int64_t elements) {
  return elements == 0 ? int4_group : int4_group * 2 * elements / scales;
}

/// The type of the scales of codes.
constexpr DType scale_type(DType dtype) {
  return dtype == DType::mxfp4 ? DType::uint8 : dtype == DType::nvfp4 ? DType::fp8 : DType::fp32;
}

/// How many scales a row of `numbers` numbers has: one s, step and least of each group, or one s of
/// each block. `shared_by` counts only for int4. Elements that are not full have all scales.
constexpr int64_t row_scales(DType dtype, int64_t numbers, int64_t shared_by = int4_group) {
  if (dtype == DType::int4) return 2 * row_elements(dtype, numbers) * (int4_group / shared_by);
  if (numbers_of(dtype) > 1) return row_elements(dtype, numbers);
  return is_code(dtype) ? 1 : 0;
}

/// The bytes of a row of `numbers` numbers, with its scales.
constexpr int64_t row_bytes(DType dtype, int64_t numbers, int64_t shared_by = int4_group) {
  return row_elements(dtype, numbers) * size_of(dtype) +
         row_scales(dtype, numbers, shared_by) * size_of(scale_type(dtype));
}

/// The code of number `index` in a row of int4.
inline int int4_code(const void* row, int64_t index) {
  const int64_t word = index / int4_group * 32 + index % 32;
  const auto* const bytes = static_cast<const uint8_t*>(row) + 2 * word;
  const int shift = static_cast<int>(index % int4_group / 32) * 4;
  return (bytes[0] | bytes[1] << 8) >> shift & 15;
}

/// 2^(scale − 127), the factor of a block of mxfp4. It is NaN for 255.
float power_of_scale(uint8_t scale);

/// The number of each code of fp8.
const float* fp8_numbers();

/// FP4[code], for a code of mxfp4 or nvfp4.
float fp4_to_float(int code);

/// Number `index` of a row of any type except integers. `scales` are the row's scales, of
/// scale_type(dtype), if its type has scales. For nvfp4 it is without the matrix's factor.
float load_number(const void* row, DType dtype, const void* scales, int64_t index,
                  int64_t shared_by = int4_group);

}  // namespace pecia
