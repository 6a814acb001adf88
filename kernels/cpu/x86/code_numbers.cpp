// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/code_numbers.hpp"

#include "kernels/cpu/x86/vectors.hpp"
#include "lib/base/core/codes.hpp"

namespace pecia::kernels::cpu {
namespace {

PECIA_BF16_CODE inline __m512 scaled(__m128i codes, __m512 scale) {
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)), scale);
}

PECIA_BF16_CODE inline __m256i load_codes(const int8_t* from, int64_t count) {
  if (count >= bf16_lanes) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm256_maskz_loadu_epi8(static_cast<__mmask32>((uint64_t{1} << count) - 1), from);
}

PECIA_BF16_CODE inline __m512 widened_times(__m256i numbers, __m512 factor) {
  return _mm512_mul_ps((__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(numbers), 16), factor);
}

}  // namespace

PECIA_BF16_CODE void CodesToBf16::of_int8(const int8_t* codes, float scale) const {
  const __m512 factor = _mm512_set1_ps(scale);
  for (int64_t i = 0; i < count; i += bf16_lanes) {
    ask_for(codes + i, ahead);
    const __m256i some = load_codes(codes + i, count - i);
    const __m512bh numbers = _mm512_cvtne2ps_pbh(scaled(_mm256_extracti128_si256(some, 1), factor),
                                                 scaled(_mm256_castsi256_si128(some), factor));
    _mm512_storeu_si512(to + i, (__m512i)numbers);
  }
}

/// The 16 numbers of a group are in a table, by which its words are replaced, four bits after four.
PECIA_BF16_CODE void CodesToBf16::of_int4(const void* first, const float* scales,
                                          int64_t shared_by) const {
  const auto* groups = static_cast<const __m512i*>(first);
  for (int64_t i = 0; i < count; ++groups) {
    ask_for(groups, ahead);
    __m512i words = _mm512_loadu_si512(groups), table = {};
    for (const int64_t end = std::min(count, i + int4_group); i < end; i += bf16_lanes) {
      if (i % shared_by == 0) table = int4_numbers_in_bf16(scales + i / shared_by * 2);
      _mm512_storeu_si512(to + i, _mm512_permutexvar_epi16(words, table));
      words = _mm512_srli_epi16(words, 4);
    }
  }
}

PECIA_BF16_CODE void CodesToBf16::of_mxfp4(const uint8_t* blocks, const uint8_t* scales) const {
  const Mxfp4Numbers* const tables = mxfp4_numbers();
  for (int64_t i = 0; i < count; i += mxfp4_block, blocks += mxfp4_block / 2, ++scales) {
    if (i % int4_group == 0) ask_for(blocks, ahead);
    _mm512_storeu_si512(to + i, mxfp4_block_in_bf16(blocks, tables[*scales]));
  }
}

/// Two blocks at a time; the last block of a row may be alone.
PECIA_BF16_CODE void CodesToBf16::of_nvfp4(const uint8_t* blocks, const uint8_t* scales,
                                           float factor) const {
  const Nvfp4Numbers* const tables = nvfp4_numbers();
  const __m512 factors = _mm512_set1_ps(factor);
  for (int64_t i = 0; i < count; i += bf16_lanes, blocks += nvfp4_block, scales += 2) {
    if (i % int4_group == 0) ask_for(blocks, ahead);
    const __m512i exact = nvfp4_blocks_in_bf16(blocks, scales, count - i, tables);
    const __m512bh numbers =
        _mm512_cvtne2ps_pbh(widened_times(_mm512_extracti64x4_epi64(exact, 1), factors),
                            widened_times(_mm512_castsi512_si256(exact), factors));
    _mm512_storeu_si512(to + i, (__m512i)numbers);
  }
}

}  // namespace pecia::kernels::cpu
