// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The weights of attention by integers of 16 bits (strip.hpp), in vectors. The files that include it
/// are compiled for AVX512-BF16 with VBMI by PECIA_LANES_CODE.

#include <immintrin.h>

#include "kernels/cpu/attention/strip.hpp"

#define PECIA_LANES_CODE \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16,bmi2")))

namespace pecia::kernels::cpu {

/// The instructions of 32 weights are few, because they are integers. While tiles are at work,
/// vectors of floating point have one port on Intel's cores, and integers have two.
struct Weigher {
  __m512i magic, pairs, bits, excess;
  __m512bh ones;

  PECIA_LANES_CODE Weigher()
      : magic(_mm512_castps_si512(_mm512_set1_ps(units_shift))),
        pairs(_mm512_broadcast_i32x4(
            _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15))),
        bits(_mm512_set1_epi64(0x0031002100110001)),
        excess(_mm512_load_si512(excess_of_line().bytes)),
        ones((__m512bh)_mm512_set1_epi16(0x3f80)) {}

  PECIA_LANES_CODE __m512i units(const float* score, float scale, __m512 shift) const {
    return _mm512_sub_epi32(
        _mm512_castps_si512(_mm512_fmadd_ps(_mm512_loadu_ps(score), _mm512_set1_ps(scale), shift)),
        magic);
  }
  /// Units of two keys side by side, between 0 and 65535.
  PECIA_LANES_CODE __m512i together(__m512i first, __m512i second) const {
    return _mm512_shuffle_epi8(_mm512_packus_epi32(first, second), pairs);
  }
  /// The table's index is the highest six bits of the fraction.
  PECIA_LANES_CODE __m512i corrected(__m512i units) const {
    return _mm512_sub_epi16(
        units, _mm512_maskz_permutexvar_epi8(0x5555555555555555,
                                             _mm512_multishift_epi64_epi8(bits, units), excess));
  }
};

/// Scores in units within the range. NaN becomes the least.
PECIA_LANES_CODE inline __m512 bounded_units(__m512 score, __m512 scale) {
  const __m512 most = _mm512_set1_ps(most_units), least = _mm512_set1_ps(-most_units);
  return _mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(score, scale), least), most);
}

}  // namespace pecia::kernels::cpu
