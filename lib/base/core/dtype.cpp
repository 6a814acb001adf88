// SPDX-License-Identifier: Apache-2.0
#include "lib/base/core/dtype.hpp"

#include <cmath>

#include "lib/base/core/error.hpp"

namespace pecia {

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::fp16:
      return "fp16";
    case DType::fp8:
      return "fp8";
    case DType::int8:
      return "int8";
    case DType::int4:
      return "int4";
    case DType::mxfp4:
      return "mxfp4";
    case DType::nvfp4:
      return "nvfp4";
    case DType::int32:
      return "int32";
    case DType::int64:
      return "int64";
    case DType::uint8:
      return "uint8";
  }
  return "?";
}

float fp16_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

uint16_t float_to_fp16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7e00u;
  if (magnitude >= 65520.0f) return sign | 0x7c00u;
  if (magnitude < 6.103515625e-05f)  // subnormal half: a multiple of 2^-24
    return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, 24)));
  const uint32_t rounded =
      (bits & 0x7fffffffu) + 0xfffu + ((bits >> 13) & 1u);  // carries into the exponent
  return sign | static_cast<uint16_t>((rounded - (112u << 23)) >> 13);
}

float fp8_to_float(uint8_t bits) {
  const uint32_t sign = uint32_t{bits & 0x80u} << 24;
  const uint32_t exponent = (bits >> 3) & 0xfu, fraction = bits & 0x7u;
  if ((bits & 0x7fu) == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(fraction), -9);
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 120) << 23) | (fraction << 20));
}

uint8_t float_to_fp8(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7fu;
  if (magnitude >= max_fp8) return sign | 0x7eu;
  if (magnitude < 0x1p-6f)  // subnormal: a multiple of 2^-9
    return sign | static_cast<uint8_t>(std::nearbyint(std::ldexp(magnitude, 9)));
  const uint32_t rounded =
      (bits & 0x7fffffffu) + 0x7ffffu + ((bits >> 20) & 1u);  // carries into the exponent
  return sign | static_cast<uint8_t>((rounded - (120u << 23)) >> 20);
}

float load_as_float(const void* data, DType dtype, int64_t index) {
  if (dtype == DType::fp32) return static_cast<const float*>(data)[index];
  if (dtype == DType::fp8) return fp8_to_float(static_cast<const uint8_t*>(data)[index]);
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  if (dtype == DType::bf16) return bf16_to_float(bits);
  if (dtype == DType::fp16) return fp16_to_float(bits);
  fail<InvalidArgument>("{} is not a floating-point type", name_of(dtype));
}

void store_from_float(void* data, DType dtype, int64_t index, float value) {
  PECIA_CHECK(is_float(dtype) || dtype == DType::fp8, "{} is not a floating-point type",
              name_of(dtype));
  if (dtype == DType::fp32)
    static_cast<float*>(data)[index] = value;
  else if (dtype == DType::fp8)
    static_cast<uint8_t*>(data)[index] = float_to_fp8(value);
  else
    static_cast<uint16_t*>(data)[index] =
        dtype == DType::bf16 ? float_to_bf16(value) : float_to_fp16(value);
}

}  // namespace pecia
