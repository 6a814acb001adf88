// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/bf16_native.hpp"

#include "kernels/cpu/arm/vectors.hpp"
#include "lib/base/core/dtype.hpp"
#include "lib/base/core/isa.hpp"

namespace pecia::kernels::cpu {

bool has_native_bf16() {
  return isa() == Isa::neon_bf16;
}

PECIA_BF16_CODE void store_bf16_native(const float* x, int64_t count, uint16_t* to) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const bfloat16x8_t low = vcvtq_low_bf16_f32(vld1q_f32(x + i));
    vst1q_u16(to + i, vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(low, vld1q_f32(x + i + 4))));
  }
  if (i == count) return;
  float last[8] = {};
  uint16_t rounded[8];
  std::copy(x + i, x + count, last);
  store_bf16_native(last, 8, rounded);
  std::copy_n(rounded, count - i, to + i);
}

namespace {

/// The numbers of eight codes of fp8. Exponents of bf16 are 120 larger; the seven magnitudes below
/// the normal ones are in a table.
inline uint16x8_t bf16_of_fp8(uint8x8_t codes, uint8x16_t small) {
  const uint16x8_t code = vmovl_u8(codes);
  const uint16x8_t magnitude = vandq_u16(code, vdupq_n_u16(0x7f));
  const uint16x8_t normal = vaddq_u16(vshlq_n_u16(magnitude, 4), vdupq_n_u16(120 << 7));
  // Bytes 2 · magnitude and 2 · magnitude + 1 of the table; beyond it there are zeros.
  const uint16x8_t bytes = vmlaq_n_u16(vdupq_n_u16(0x0100), magnitude, 0x0202);
  const uint16x8_t tabled = vreinterpretq_u16_u8(vqtbl1q_u8(small, vreinterpretq_u8_u16(bytes)));
  uint16x8_t number = vbslq_u16(vcgeq_u16(magnitude, vdupq_n_u16(8)), normal, tabled);
  number = vbslq_u16(vceqq_u16(magnitude, vdupq_n_u16(0x7f)), vdupq_n_u16(0x7fc0), number);  // NaN
  return vorrq_u16(number, vshlq_n_u16(vshrq_n_u16(code, 7), 15));
}

}  // namespace

void fp8_to_bf16_native(const uint8_t* codes, int64_t count, int64_t ahead, uint16_t* to) {
  alignas(16) uint16_t numbers[8];
  for (uint8_t code = 0; code < 8; ++code) numbers[code] = float_to_bf16(fp8_to_float(code));
  const uint8x16_t small = vld1q_u8(reinterpret_cast<const uint8_t*>(numbers));
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    if (i % 64 == 0) ask_for(codes + i, ahead);
    vst1q_u16(to + i, bf16_of_fp8(vld1_u8(codes + i), small));
  }
  if (i == count) return;
  uint8_t last[8] = {};
  uint16_t numbers_of_last[8];
  std::copy(codes + i, codes + count, last);
  vst1q_u16(numbers_of_last, bf16_of_fp8(vld1_u8(last), small));
  std::copy_n(numbers_of_last, count - i, to + i);
}

}  // namespace pecia::kernels::cpu
