// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/code_numbers.hpp"

#include "kernels/cpu/arm/codes.hpp"
#include "lib/base/core/codes.hpp"

namespace pecia::kernels::cpu {
namespace {

PECIA_BF16_CODE inline bfloat16x8_t times(bfloat16x8_t numbers, float factor) {
  const uint16x8_t bits = vreinterpretq_u16_bf16(numbers);
  const float32x4_t low = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16));
  const float32x4_t high = vreinterpretq_f32_u32(vshll_high_n_u16(bits, 16));
  return vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(vmulq_n_f32(low, factor)),
                             vmulq_n_f32(high, factor));
}

}  // namespace

PECIA_BF16_CODE void CodesToBf16::of_int8(const int8_t* codes, float scale) const {
  for (int64_t i = 0; i < count; i += bf16_lanes) {
    ask_for(codes + i, ahead);
    int8_numbers(codes + i, count - i, scale).store(to + i);
  }
}

PECIA_BF16_CODE void CodesToBf16::of_int4(const void* groups, const float* scales,
                                          int64_t shared_by) const {
  const auto* words = static_cast<const uint16_t*>(groups);
  NumberTable table;
  for (int64_t i = 0; i < count; words += bf16_lanes) {
    ask_for(words, ahead);
    const int64_t end = std::min(count, i + int4_group);
    for (int shift = 0; i < end; i += bf16_lanes, shift += 4) {
      if (i % shared_by == 0) table = NumberTable::of_int4(scales + i / shared_by * 2);
      int4_numbers(words, shift, table).store(to + i);
    }
  }
}

PECIA_BF16_CODE void CodesToBf16::of_mxfp4(const uint8_t* blocks, const uint8_t* scales) const {
  const Mxfp4Numbers* const tables = mxfp4_numbers();
  for (int64_t i = 0; i < count; i += mxfp4_block, blocks += mxfp4_block / 2, ++scales) {
    if (i % int4_group == 0) ask_for(blocks, ahead);
    const NumberTable table(tables[*scales]);
    fp4_numbers(blocks, table, table).store(to + i);
  }
}

/// The last block of a row may be alone; then zeros fill the vector.
PECIA_BF16_CODE void CodesToBf16::of_nvfp4(const uint8_t* blocks, const uint8_t* scales,
                                           float factor) const {
  const Nvfp4Numbers* const tables = nvfp4_numbers();
  int64_t i = 0;
  for (; i < count; i += nvfp4_block, blocks += nvfp4_block / 2, ++scales) {
    if (i % int4_group == 0) ask_for(blocks, ahead);
    bfloat16x8_t numbers[2];
    NumberTable(tables[*scales]).look_up(codes_of_bytes(vld1_u8(blocks)), numbers);
    for (int half = 0; half < 2; ++half)
      vst1q_u16(to + i + 8 * half, vreinterpretq_u16_bf16(times(numbers[half], factor)));
  }
  if (i % bf16_lanes != 0) std::fill_n(to + i, nvfp4_block, uint16_t{0});
}

}  // namespace pecia::kernels::cpu
