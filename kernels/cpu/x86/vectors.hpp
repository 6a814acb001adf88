// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Vectors of bf16: loads, pairs, transposition. The files that include it are compiled for
/// AVX512-BF16 by PECIA_BF16_CODE.

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/products/bf16_native.hpp"
#include "kernels/cpu/shared/prefetch.hpp"

// Highway 1.0 names neither the instruction nor a target that has it.
#define PECIA_BF16_CODE __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

// GCC 12 takes the undefined operands in its own headers for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace pecia::kernels::cpu {

PECIA_BF16_CODE inline __m512bh load_pairs(const uint16_t* from) {
  return (__m512bh)_mm512_loadu_si512(from);
}

/// Loads the elements below `count`, with zeros after them. `count` may be more than there are.
PECIA_BF16_CODE inline __m512bh load_some(const uint16_t* from, int64_t count) {
  const __mmask32 mask =
      count >= 32 ? ~__mmask32{0} : (__mmask32{1} << std::max<int64_t>(0, count)) - 1;
  return (__m512bh)_mm512_maskz_loadu_epi16(mask, from);
}

/// Loads two neighbours into all lanes.
PECIA_BF16_CODE inline __m512bh spread_pair(const uint16_t* from) {
  int pair;
  __builtin_memcpy(&pair, from, sizeof pair);
  return (__m512bh)_mm512_set1_epi32(pair);
}

/// Makes pairs of two rows. `low` pairs columns 0 … 15, and `high` pairs columns 16 … 31.
class PairsOfRows {
 public:
  PECIA_BF16_CODE PairsOfRows() {
    // Indices below 32 are elements of the first row, the others are elements of the second.
    alignas(64) uint16_t order[32];
    for (uint16_t i = 0; i < 32; ++i) order[i] = static_cast<uint16_t>(i / 2 + i % 2 * 32);
    low_ = _mm512_load_si512(order);
    high_ = _mm512_add_epi16(low_, _mm512_set1_epi16(16));
  }
  PECIA_BF16_CODE __m512i low(__m512i first, __m512i second) const {
    return _mm512_permutex2var_epi16(first, low_, second);
  }
  PECIA_BF16_CODE __m512i high(__m512i first, __m512i second) const {
    return _mm512_permutex2var_epi16(first, high_, second);
  }

 private:
  __m512i low_, high_;
};

/// The 16 numbers of a group of int4, by step and least, twice over. Where words of codes are the
/// indices, five bits count, of which the highest belongs to another code.
PECIA_BF16_CODE inline __m512i int4_numbers_in_bf16(const float* scales) {
  const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512 numbers =
      _mm512_add_ps(_mm512_set1_ps(scales[1]), _mm512_mul_ps(codes, _mm512_set1_ps(scales[0])));
  const auto half = (__m256i)_mm512_cvtneps_pbh(numbers);
  return _mm512_inserti64x4(_mm512_castsi256_si512(half), half, 1);
}

/// The 32 numbers of a block of mxfp4, whose 16 numbers are in the table twice. Each byte becomes
/// two words, whose lowest four bits are a code. The fifth bit, which counts in an index, too, may be
/// of another code.
PECIA_BF16_CODE inline __m512i mxfp4_block_in_bf16(const uint8_t* block, const uint16_t* table) {
  const __m512i bytes =
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block)));
  return _mm512_permutexvar_epi16(_mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12)),
                                  _mm512_load_si512(table));
}

/// The 32 numbers of two blocks of nvfp4, or those of one block and zeros where no more than `count`
/// numbers are left and these are of one block. `tables` has the 16 numbers of a block for each scale.
PECIA_BF16_CODE inline __m512i nvfp4_blocks_in_bf16(const uint8_t* blocks, const uint8_t* scales,
                                                    int64_t count, const uint16_t (*tables)[16]) {
  const bool both = count > 16;
  const auto* const from = reinterpret_cast<const __m128i*>(blocks);
  const __m512i bytes = _mm512_cvtepu8_epi32(both ? _mm_loadu_si128(from) : _mm_loadl_epi64(from));
  const auto* const first = reinterpret_cast<const __m256i*>(tables[scales[0]]);
  const auto* const other = reinterpret_cast<const __m256i*>(tables[both ? scales[1] : 0]);
  const __m512i table = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_load_si256(first)),
                                           _mm256_load_si256(other), 1);
  // A word's lowest four bits are a code, and the fifth bit says which block it is of.
  const __m512i words = _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
  const __m512i codes = _mm512_and_si512(words, _mm512_set1_epi16(15));
  const __m512i second = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1);
  return _mm512_permutexvar_epi16(_mm512_or_si512(codes, second), table);
}

constexpr int64_t sum_lanes = 16;

/// Makes columns of rows of pairs. Lane c of result r is lane r of v[c].
PECIA_BF16_CODE inline void transpose(__m512i (&v)[sum_lanes]) {
  __m512i t[sum_lanes];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      v[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
      v[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
    // Now v[4·g + r] has in its block b the lanes 4·b + r of the rows 4·g … 4·g + 3.
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    const __m512i low01 = _mm512_shuffle_i32x4(v[r], v[4 + r], 0x88);
    const __m512i low23 = _mm512_shuffle_i32x4(v[8 + r], v[12 + r], 0x88);
    const __m512i high01 = _mm512_shuffle_i32x4(v[r], v[4 + r], 0xdd);
    const __m512i high23 = _mm512_shuffle_i32x4(v[8 + r], v[12 + r], 0xdd);
    t[r] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    t[8 + r] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
    t[4 + r] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    t[12 + r] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) v[i] = t[i];
}

/// Loads 16 rows of 32 elements. Four rows at a time are asked for, too, `ahead` bytes later.
template <bool kAsk>
PECIA_BF16_CODE inline void load_rows(const uint16_t* rows, int64_t stride, int64_t ahead,
                                      __m512i (&v)[sum_lanes]) {
  const auto* from = reinterpret_cast<const char*>(rows);
  int64_t step = stride * static_cast<int64_t>(sizeof(uint16_t));
  // Else 16 addresses would be kept from step to step, for which there are no registers.
  asm volatile("" : "+r"(step));
#pragma GCC unroll 4
  for (int c = 0; c < sum_lanes; c += 4, from += 4 * step) {
    v[c] = _mm512_loadu_si512(from);
    v[c + 1] = _mm512_loadu_si512(from + step);
    v[c + 2] = _mm512_loadu_si512(from + 2 * step);
    v[c + 3] = _mm512_loadu_si512(from + 3 * step);
    if constexpr (kAsk) {
      ask_for(from, ahead);
      ask_for(from + step, ahead);
      ask_for(from + 2 * step, ahead);
      ask_for(from + 3 * step, ahead);
    }
  }
}

/// Elements 0 … 31 of 16 rows, transposed: result r has the elements 2 · r and 2 · r + 1 of all
/// rows. The same elements `ahead` elements later are asked for meanwhile, if it is not 0.
PECIA_BF16_CODE inline void load_transposed(const uint16_t* rows, int64_t stride, int64_t ahead,
                                            __m512i (&v)[sum_lanes]) {
  if (ahead != 0)
    load_rows<true>(rows, stride, ahead * static_cast<int64_t>(sizeof(uint16_t)), v);
  else
    load_rows<false>(rows, stride, 0, v);
  transpose(v);
}

/// Elements 0 … 31 of `count` rows, fewer than 16, transposed, with the last row again in place of
/// those that are not there. Elements `ahead` elements later are asked for meanwhile.
PECIA_BF16_CODE inline void load_few_transposed(const uint16_t* rows, int64_t stride, int64_t count,
                                                int64_t ahead, __m512i (&v)[sum_lanes]) {
#pragma GCC unroll 16
  for (int64_t c = 0; c < sum_lanes; ++c) {
    const uint16_t* const from = rows + std::min(c, count - 1) * stride;
    v[c] = _mm512_loadu_si512(from);
    ask_for(from + ahead, 0);
  }
  transpose(v);
}

/// The first `depth` elements, 32 at most, of `count` rows, 16 at most, and zeros.
PECIA_BF16_CODE inline void load_some_transposed(const uint16_t* rows, int64_t stride,
                                                 int64_t count, int64_t depth,
                                                 __m512i (&v)[sum_lanes]) {
  for (int64_t c = 0; c < sum_lanes; ++c)
    v[c] = c < count ? (__m512i)load_some(rows + c * stride, depth) : _mm512_setzero_si512();
  transpose(v);
}

}  // namespace pecia::kernels::cpu
