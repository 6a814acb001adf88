// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Element types of tensors, and the scalar conversions that all other conversions are tested
/// against.

#include <bit>
#include <cstdint>
#include <string_view>

namespace pecia {

enum class DType : uint8_t {
  fp32,
  bf16,
  fp16,
  fp8,    ///< E4M3 without infinities (OCP FP8, §4), up to ±448; always with scales
  int8,   ///< codes of 8 bits, see codes.hpp
  int4,   ///< codes of 4 bits; one element is a group of 128 codes, see codes.hpp
  mxfp4,  ///< codes of 4 bits (OCP MXFP4); one element is a block of 32 codes, see codes.hpp
  nvfp4,  ///< the same codes, with other scales; one element is a block of 16 codes, see codes.hpp
  int32,
  int64,
  uint8
};

constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
    case DType::int32:
      return 4;
    case DType::bf16:
    case DType::fp16:
      return 2;
    case DType::int64:
    case DType::nvfp4:
      return 8;
    case DType::fp8:
    case DType::int8:
    case DType::uint8:
      return 1;
    case DType::int4:
      return 64;
    case DType::mxfp4:
      return 16;
  }
  return 0;
}

std::string_view name_of(DType dtype);

/// Whether the type represents numbers without scales.
constexpr bool is_float(DType dtype) {
  return dtype == DType::fp32 || dtype == DType::bf16 || dtype == DType::fp16;
}

/// bfloat16 bits → float, exact.
inline float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

/// float → bfloat16 bits, round to nearest even; NaN stays NaN (quiet).
inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// IEEE half bits → float, exact (subnormals, infinities and NaN included).
float fp16_to_float(uint16_t bits);

/// float → IEEE half bits, round to nearest even; a value that is too large becomes infinity.
uint16_t float_to_fp16(float value);

inline constexpr float max_fp8 = 448.0f;

/// E4M3 bits → float, exact.
float fp8_to_float(uint8_t bits);

/// float → E4M3 bits, round to nearest even. Infinity and values that are too large become ±448;
/// NaN stays NaN.
uint8_t float_to_fp8(float value);

/// Element `index` of an array of `dtype` (fp32, bf16, fp16 or fp8) as float.
float load_as_float(const void* data, DType dtype, int64_t index);

/// Stores `value` at element `index`, rounded to `dtype` (fp32, bf16, fp16 or fp8).
void store_from_float(void* data, DType dtype, int64_t index, float value);

}  // namespace pecia
