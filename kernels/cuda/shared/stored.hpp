// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The narrow types as kernels see them. They are bits, which are widened exactly and rounded to
/// nearest even. The device does it by one instruction, and the host by lib/base/core's scalar
/// conversions.

#include <bit>
#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#include <cuda_fp8.h>
#endif

#include "kernels/cuda/shared/host_device.hpp"
#include "lib/base/core/dtype.hpp"

namespace pecia::kernels::cuda {

struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};
struct Fp8 {
  uint8_t bits;
};

PECIA_HD float float_of_bits(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}
PECIA_HD uint32_t bits_of_float(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  return std::bit_cast<uint32_t>(value);
#endif
}

PECIA_HD float widen(float value) {
  return value;
}

PECIA_HD float widen(Bf16 value) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(uint32_t{value.bits} << 16);
#else
  return bf16_to_float(value.bits);
#endif
}

PECIA_HD float widen(Fp16 value) {
#ifdef __CUDA_ARCH__
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  return fp16_to_float(value.bits);
#endif
}

PECIA_HD float widen(Fp8 value) {
#ifdef __CUDA_ARCH__
  return __half2float(__nv_cvt_fp8_to_halfraw(value.bits, __NV_E4M3));
#else
  return fp8_to_float(value.bits);
#endif
}

/// Returns `value` rounded to T. A value too large for T becomes infinity in fp16 and ±448 in fp8.
/// NaN stays NaN.
template <typename T>
PECIA_HD T rounded_to(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    T result;
#ifdef __CUDA_ARCH__
    if constexpr (std::is_same_v<T, Fp8>)
      result.bits = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
    else if constexpr (std::is_same_v<T, Bf16>)
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    else
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
#else
    if constexpr (std::is_same_v<T, Fp8>)
      result.bits = float_to_fp8(value);
    else
      result.bits = std::is_same_v<T, Bf16> ? float_to_bf16(value) : float_to_fp16(value);
#endif
    return result;
  }
}

/// The type in which tensor cores multiply T. fp8 is widened first, exactly.
template <typename T>
using ProductOf = std::conditional_t<std::is_same_v<T, Fp8>, Bf16, T>;

/// Calls body(T{}) with the type that stores `dtype`, which is fp32, bf16 or fp16.
template <typename Body>
void with_stored_type(DType dtype, const Body& body) {
  if (dtype == DType::bf16)
    body(Bf16{});
  else if (dtype == DType::fp16)
    body(Fp16{});
  else
    body(float{});
}

/// Does the same for keys and values, which may be fp8, too.
template <typename Body>
void with_kv_type(DType dtype, const Body& body) {
  if (dtype == DType::fp8)
    body(Fp8{});
  else
    with_stored_type(dtype, body);
}

}  // namespace pecia::kernels::cuda
