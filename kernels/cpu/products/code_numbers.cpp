// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/code_numbers.hpp"

#include "kernels/cpu/products/bf16_vectors.hpp"
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
PECIA_BF16_CODE void int4_to_bf16(const __m512i* groups, const float* scales, int64_t shared_by,
                                  int64_t count, int64_t ahead, uint16_t* to) {
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

PECIA_BF16_CODE void mxfp4_to_bf16(const uint8_t* blocks, const uint8_t* scales, int64_t count,
                                   int64_t ahead, uint16_t* to) {
  const Mxfp4Numbers* const tables = mxfp4_numbers();
  for (int64_t i = 0; i < count; i += mxfp4_block, blocks += mxfp4_block / 2, ++scales) {
    if (i % int4_group == 0) ask_for(blocks, ahead);
    _mm512_storeu_si512(to + i, mxfp4_block_in_bf16(blocks, tables[*scales]));
  }
}

PECIA_BF16_CODE inline __m512 widened_times(__m256i numbers, __m512 factor) {
  return _mm512_mul_ps((__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(numbers), 16), factor);
}

/// Two blocks at a time; the last block of a row may be alone.
PECIA_BF16_CODE void nvfp4_to_bf16(const uint8_t* blocks, const uint8_t* scales, float factor,
                                   int64_t count, int64_t ahead, uint16_t* to) {
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

struct Nvfp4Tables {
  alignas(64) Nvfp4Numbers of_scale[256];

  Nvfp4Tables() {
    for (int scale = 0; scale < 256; ++scale)
      for (int code = 0; code < 16; ++code)
        of_scale[scale][code] = float_to_bf16(fp4_to_float(code) * fp8_numbers()[scale]);
  }
};

struct Mxfp4Tables {
  alignas(64) Mxfp4Numbers of_scale[256];

  Mxfp4Tables() {
    for (int scale = 0; scale < 256; ++scale)
      for (int i = 0; i < 32; ++i)
        of_scale[scale][i] =
            float_to_bf16(fp4_to_float(i % 16) * power_of_scale(static_cast<uint8_t>(scale)));
  }
};

}  // namespace

const Mxfp4Numbers* mxfp4_numbers() {
  static const Mxfp4Tables tables;
  return tables.of_scale;
}

const Nvfp4Numbers* nvfp4_numbers() {
  static const Nvfp4Tables tables;
  return tables.of_scale;
}

int64_t bytes_ahead_of(const CodeRows& rows, int64_t numbers) {
  const int64_t element = size_of(rows.dtype);
  return bytes_ahead(rows.row_stride * element, row_elements(rows.dtype, numbers) * element);
}

void codes_to_bf16(const CodeRows& from, int64_t rows, int64_t begin, int64_t count, uint16_t* to,
                   int64_t to_stride) {
  const int64_t ahead = bytes_ahead_of(from, count);
  for (int64_t row = 0; row < rows; ++row, to += to_stride) {
    const CodeRows one = from.from(row);
    if (from.dtype == DType::int8)
      int8_to_bf16(static_cast<const int8_t*>(one.data) + begin, *one.factors(), count, ahead, to);
    else if (from.dtype == DType::mxfp4)
      mxfp4_to_bf16(static_cast<const uint8_t*>(one.data) + begin / 2,
                    static_cast<const uint8_t*>(one.scales) + begin / mxfp4_block, count, ahead,
                    to);
    else if (from.dtype == DType::nvfp4)
      nvfp4_to_bf16(static_cast<const uint8_t*>(one.data) + begin / 2,
                    static_cast<const uint8_t*>(one.scales) + begin / nvfp4_block, one.factor,
                    count, ahead, to);
    else
      int4_to_bf16(static_cast<const __m512i*>(one.data) + begin / int4_group,
                   one.factors() + begin / from.shared_by * 2, from.shared_by, count, ahead, to);
  }
}

}  // namespace pecia::kernels::cpu
