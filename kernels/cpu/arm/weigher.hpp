// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The weights of attention by integers of 16 bits (strip.hpp), in vectors of NEON.

#include <arm_neon.h>

#include "kernels/cpu/attention/strip.hpp"

namespace pecia::kernels::cpu {

struct Weigher {
  uint8x16x4_t excess;

  Weigher() {
    for (int v = 0; v < 4; ++v) excess.val[v] = vld1q_u8(excess_of_line().bytes + 16 * v);
  }

  /// Units of eight scores, between 0 and 65535. What is below 0 becomes 0.
  static uint16x8_t units(float32x4_t low, float32x4_t high) {
    const int32x4_t magic = vreinterpretq_s32_f32(vdupq_n_f32(units_shift));
    return vqmovun_high_s32(vqmovun_s32(vsubq_s32(vreinterpretq_s32_f32(low), magic)),
                            vsubq_s32(vreinterpretq_s32_f32(high), magic));
  }
  /// The table's index is the highest six bits of the fraction. Bytes beyond the table give zeros.
  uint16x8_t corrected(uint16x8_t units) const {
    const uint16x8_t index = vandq_u16(vshrq_n_u16(units, 1), vdupq_n_u16(63));
    const uint16x8_t beyond = vdupq_n_u16(0xff00);
    return vsubq_u16(units, vreinterpretq_u16_u8(vqtbl4q_u8(
                                excess, vreinterpretq_u8_u16(vorrq_u16(index, beyond)))));
  }
  /// Weights as sums take them: denormals are 0.
  static uint16x8_t summands(uint16x8_t weights) {
    return vandq_u16(weights, vcgeq_u16(weights, vdupq_n_u16(0x80)));
  }
};

inline float32x4_t wide_low(uint16x8_t bf16) {
  return vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bf16), 16));
}
inline float32x4_t wide_high(uint16x8_t bf16) {
  return vreinterpretq_f32_u32(vshll_high_n_u16(bf16, 16));
}

}  // namespace pecia::kernels::cpu
