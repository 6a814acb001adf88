// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Numbers of bf16 out of codes, 32 at a time. Codes of four bits are indices of tables of 16 numbers,
/// whose lower and upper bytes are a vector each.

#include "kernels/cpu/arm/vectors.hpp"

namespace pecia::kernels::cpu {

/// bf16_lanes numbers.
struct Numbers32 {
  bfloat16x8_t at[4];

  PECIA_BF16_CODE void store(uint16_t* to) const {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) vst1q_u16(to + 8 * v, vreinterpretq_u16_bf16(at[v]));
  }
};

struct NumberTable {
  uint8x16_t lower = {}, upper = {};

  NumberTable() = default;
  PECIA_BF16_CODE explicit NumberTable(const uint16_t* numbers) {
    const uint8x16_t a = vld1q_u8(reinterpret_cast<const uint8_t*>(numbers));
    const uint8x16_t b = vld1q_u8(reinterpret_cast<const uint8_t*>(numbers + 8));
    lower = vuzp1q_u8(a, b), upper = vuzp2q_u8(a, b);
  }
  /// The numbers of codes 0 … 15, each `scales[0]` times the code, plus `scales[1]`.
  PECIA_BF16_CODE static NumberTable of_int4(const float* scales) {
    alignas(16) static constexpr float codes[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                    8, 9, 10, 11, 12, 13, 14, 15};
    uint16_t numbers[16];
    for (int i = 0; i < 16; i += 8) {
      const auto wide = [&](int at) {
        return vaddq_f32(vdupq_n_f32(scales[1]), vmulq_n_f32(vld1q_f32(codes + at), scales[0]));
      };
      const bfloat16x8_t low = vcvtq_low_bf16_f32(wide(i));
      vst1q_u16(numbers + i, vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(low, wide(i + 4))));
    }
    return NumberTable(numbers);
  }
  /// The numbers of 16 codes, one in each byte.
  PECIA_BF16_CODE void look_up(uint8x16_t codes, bfloat16x8_t* to) const {
    const uint8x16_t low = vqtbl1q_u8(lower, codes), high = vqtbl1q_u8(upper, codes);
    to[0] = vreinterpretq_bf16_u8(vzip1q_u8(low, high));
    to[1] = vreinterpretq_bf16_u8(vzip2q_u8(low, high));
  }
};

/// Four bits of each of 32 words, from `shift` on.
PECIA_BF16_CODE inline Numbers32 int4_numbers(const uint16_t* words, int shift,
                                              const NumberTable& table) {
  const int16x8_t right = vdupq_n_s16(static_cast<int16_t>(-shift));
  Numbers32 numbers;
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const uint16x8_t a = vshlq_u16(vld1q_u16(words + 16 * half), right);
    const uint16x8_t b = vshlq_u16(vld1q_u16(words + 16 * half + 8), right);
    const uint8x16_t bytes = vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
    table.look_up(vandq_u8(bytes, vdupq_n_u8(15)), numbers.at + 2 * half);
  }
  return numbers;
}

/// The codes of eight bytes: of each the lower four bits first.
PECIA_BF16_CODE inline uint8x16_t codes_of_bytes(uint8x8_t bytes) {
  const uint8x8_t low = vand_u8(bytes, vdup_n_u8(15)), high = vshr_n_u8(bytes, 4);
  return vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high));
}

/// Two halves of 16 numbers, with a table each.
PECIA_BF16_CODE inline Numbers32 fp4_numbers(const uint8_t* codes, const NumberTable& first,
                                             const NumberTable& second) {
  Numbers32 numbers;
  first.look_up(codes_of_bytes(vld1_u8(codes)), numbers.at);
  second.look_up(codes_of_bytes(vld1_u8(codes + 8)), numbers.at + 2);
  return numbers;
}

/// 16 codes of int8 as numbers, times a scale, rounded.
PECIA_BF16_CODE inline void int8_numbers(int8x16_t codes, float scale, bfloat16x8_t* to) {
  const int16x8_t halves[2] = {vmovl_s8(vget_low_s8(codes)), vmovl_high_s8(codes)};
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const float32x4_t low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(halves[half])));
    const float32x4_t high = vcvtq_f32_s32(vmovl_high_s16(halves[half]));
    to[half] =
        vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(vmulq_n_f32(low, scale)), vmulq_n_f32(high, scale));
  }
}

/// Up to 32 codes of int8, and zeros.
PECIA_BF16_CODE inline Numbers32 int8_numbers(const int8_t* codes, int64_t count, float scale) {
  int8_t some[32] = {};
  if (count < 32) {
    std::copy_n(codes, count, some);
    codes = some;
  }
  Numbers32 numbers;
  int8_numbers(vld1q_s8(codes), scale, numbers.at);
  int8_numbers(vld1q_s8(codes + 16), scale, numbers.at + 2);
  return numbers;
}

}  // namespace pecia::kernels::cpu
