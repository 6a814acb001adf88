// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Widens E4M3 codes to operands of bf16 products. Their three bits of fraction and four of
/// exponent fit into bf16, where the same bits stand for 2⁻¹²⁰ of the number.

#include "kernels/cuda/shared/instructions.cuh"

namespace pecia::kernels::cuda {

/// Widens two codes, each in the upper byte of a half, to bf16. NaN is taken for 480, because a
/// vector that holds one has NaN for a scale (lib/base/core/fp8_vector.hpp).
__device__ __forceinline__ uint32_t widen_upper_bytes(uint32_t codes) {
  constexpr uint32_t two_to_120 = 0x7b807b80u;
  return multiply_pairs((codes & 0x80008000u) | ((codes >> 4) & 0x07f007f0u), two_to_120);
}

/// Widen codes 0 and 1 of four, codes 2 and 3, codes 0 and 2, and codes 1 and 3.
__device__ __forceinline__ uint32_t widen_01(uint32_t codes) {
  return widen_upper_bytes(select_bytes(codes, 0, 0x1404));
}
__device__ __forceinline__ uint32_t widen_23(uint32_t codes) {
  return widen_upper_bytes(select_bytes(codes, 0, 0x3424));
}
__device__ __forceinline__ uint32_t widen_02(uint32_t codes) {
  return widen_upper_bytes(codes << 8);
}
__device__ __forceinline__ uint32_t widen_13(uint32_t codes) {
  return widen_upper_bytes(codes);
}

}  // namespace pecia::kernels::cuda
