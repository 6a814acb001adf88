// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/code_numbers.hpp"

#include "kernels/cpu/products/bf16_vectors.hpp"
#include "lib/core/codes.hpp"

namespace pecia::kernels::cpu {
namespace {

PECIA_BF16_CODE inline __m512 scaled(__m128i codes, __m512 scale) {
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)), scale);
}

PECIA_BF16_CODE inline __m256i load_codes(const int8_t* from, int64_t count) {
  if (count >= bf16_lanes) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm256_maskz_loadu_epi8(static_cast<__mmask32>((uint64_t{1} << count) - 1), from);
}

PECIA_BF16_CODE void int8_to_bf16(const int8_t* codes, float scale, int64_t count, int64_t ahead,
                                  uint16_t* to) {
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
PECIA_BF16_CODE void int4_to_bf16(const __m512i* groups, const float* scales, int64_t count,
                                  int64_t ahead, uint16_t* to) {
  const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int64_t i = 0; i < count; ++groups, scales += 2) {
    ask_for(groups, ahead);
    const __m512 numbers =
        _mm512_add_ps(_mm512_set1_ps(scales[1]), _mm512_mul_ps(codes, _mm512_set1_ps(scales[0])));
    const auto half = (__m256i)_mm512_cvtneps_pbh(numbers);
    // Of the five bits that count in an index, the highest belongs to the next number; the table
    // is there twice.
    const __m512i table = _mm512_inserti64x4(_mm512_castsi256_si512(half), half, 1);
    __m512i words = _mm512_loadu_si512(groups);
    for (const int64_t end = std::min(count, i + int4_group); i < end; i += bf16_lanes) {
      _mm512_storeu_si512(to + i, _mm512_permutexvar_epi16(words, table));
      words = _mm512_srli_epi16(words, 4);
    }
  }
}

}  // namespace

void codes_to_bf16(const CodeRows& from, int64_t rows, int64_t begin, int64_t count, uint16_t* to,
                   int64_t to_stride) {
  const int64_t ahead = bytes_ahead(from.row_stride * size_of(from.dtype));
  for (int64_t row = 0; row < rows; ++row, to += to_stride) {
    const CodeRows one = from.from(row);
    if (from.dtype == DType::int8)
      int8_to_bf16(static_cast<const int8_t*>(one.data) + begin, *one.scales, count, ahead, to);
    else
      int4_to_bf16(static_cast<const __m512i*>(one.data) + begin / int4_group,
                   one.scales + begin / int4_group * 2, count, ahead, to);
  }
}

}  // namespace pecia::kernels::cpu
