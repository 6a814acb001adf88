// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/code_products.hpp"

#include <algorithm>

#include "kernels/cpu/products/bf16_dot.hpp"
#include "lib/core/codes.hpp"

namespace pecia::kernels::cpu {
namespace {

PECIA_BF16_CODE inline __m512 widen(__m128i codes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
}

/// Codes alone; the scale comes last, to the sum.
struct Int8Column {
  static constexpr int together = 1;
  const int8_t* codes;
  float scale;
  int64_t ahead;

  Int8Column() = default;
  Int8Column(const CodeRows& rows, int64_t begin)
      : codes(static_cast<const int8_t*>(rows.data) + begin),
        scale(*rows.scales),
        ahead(bytes_ahead(rows.row_stride)) {}

  PECIA_BF16_CODE static __m512bh numbers(__m256i codes) {
    return _mm512_cvtne2ps_pbh(widen(_mm256_extracti128_si256(codes, 1)),
                               widen(_mm256_castsi256_si128(codes)));
  }
  PECIA_BF16_CODE __m512bh next(int64_t i) const {
    ask_for(codes + i, ahead);
    return numbers(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i)));
  }
  PECIA_BF16_CODE __m512bh last(int64_t i, int64_t count) const {
    const auto mask = static_cast<__mmask32>((uint64_t{1} << std::min<int64_t>(count, 32)) - 1);
    return numbers(_mm256_maskz_loadu_epi8(mask, codes + i));
  }
  float factor() const { return scale; }
};

/// The 16 numbers of a group are in a table, by which its words are replaced, four bits after four.
struct Int4Column {
  static constexpr int together = 4;
  const __m512i* groups;
  const float* scales;
  int64_t ahead;
  __m512i words = {}, table = {};

  Int4Column() = default;
  Int4Column(const CodeRows& rows, int64_t begin)
      : groups(static_cast<const __m512i*>(rows.data) + begin / int4_group),
        scales(rows.scales + begin / int4_group * 2),
        ahead(bytes_ahead(rows.row_stride * static_cast<int64_t>(sizeof(__m512i)))) {}

  PECIA_BF16_CODE __m512bh next(int64_t i) {
    if (i % int4_group == 0) begin_group(i / int4_group);
    // Of the five bits that count in an index, the highest belongs to the next number; the table
    // is there twice.
    const __m512i numbers = _mm512_permutexvar_epi16(words, table);
    words = _mm512_srli_epi16(words, 4);
    return (__m512bh)numbers;
  }
  PECIA_BF16_CODE __m512bh last(int64_t i, int64_t) { return next(i); }  // the group is whole
  float factor() const { return 1; }

 private:
  PECIA_BF16_CODE void begin_group(int64_t group) {
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 numbers = _mm512_add_ps(_mm512_set1_ps(scales[2 * group + 1]),
                                         _mm512_mul_ps(codes, _mm512_set1_ps(scales[2 * group])));
    const auto half = (__m256i)_mm512_cvtneps_pbh(numbers);
    table = _mm512_inserti64x4(_mm512_castsi256_si512(half), half, 1);
    ask_for(groups + group, ahead);
    words = _mm512_loadu_si512(groups + group);
  }
};

template <class Column>
void dot_columns_of(const DotCodesArgs& args) {
  dot_few_rows({args.a, args.a_stride, args.c, args.c_stride, args.rows, args.columns, args.depth,
                args.accumulate},
               [&](int64_t o) { return Column(args.b.from(o), 0); });
}

PECIA_BF16_CODE inline __m256i scaled(__m256i numbers, __m512 factor) {
  const __m512 wide = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(numbers), 16));
  return (__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(wide, factor));
}

template <class Column>
PECIA_BF16_CODE void decode(Column column, int64_t count, uint16_t* to) {
  const __m512 factor = _mm512_set1_ps(column.factor());
  for (int64_t i = 0; i < count; i += bf16_lanes) {
    const int64_t left = count - i;
    const auto numbers = (__m512i)(left >= bf16_lanes ? column.next(i) : column.last(i, left));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        scaled(_mm512_castsi512_si256(numbers), factor));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i + 16),
                        scaled(_mm512_extracti64x4_epi64(numbers, 1), factor));
  }
}

}  // namespace

void dot_codes(const DotCodesArgs& args) {
  if (args.b.dtype == DType::int8)
    dot_columns_of<Int8Column>(args);
  else
    dot_columns_of<Int4Column>(args);
}

void codes_to_bf16(const CodeRows& from, int64_t rows, int64_t begin, int64_t count, uint16_t* to,
                   int64_t to_stride) {
  for (int64_t row = 0; row < rows; ++row)
    if (from.dtype == DType::int8)
      decode(Int8Column(from.from(row), begin), count, to + row * to_stride);
    else
      decode(Int4Column(from.from(row), begin), count, to + row * to_stride);
}

}  // namespace pecia::kernels::cpu
