// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/bf16_native.hpp"

#include <immintrin.h>

#include <algorithm>

#include "kernels/cpu/x86/vectors.hpp"
#include "lib/base/core/dtype.hpp"
#include "lib/base/core/isa.hpp"

namespace pecia::kernels::cpu {

bool has_native_bf16() {
  return isa() >= Isa::avx512_bf16;
}

PECIA_BF16_CODE void store_bf16_native(const float* x, int64_t count, uint16_t* to) {
  for (int64_t i = 0; i < count; i += 16) {
    const int64_t left = count - i;
    const __mmask16 mask = left < 16 ? static_cast<__mmask16>((1u << left) - 1) : __mmask16{0xffff};
    const __m256bh halves = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, x + i));
    _mm256_mask_storeu_epi16(to + i, mask, (__m256i)halves);
  }
}

namespace {

/// The numbers of fp8 without a sign, four vectors of 32.
struct Fp8Magnitudes {
  alignas(64) uint16_t numbers[128];

  Fp8Magnitudes() {
    for (int code = 0; code < 128; ++code)
      numbers[code] = float_to_bf16(fp8_to_float(static_cast<uint8_t>(code)));
  }
};

}  // namespace

PECIA_BF16_CODE void fp8_to_bf16_native(const uint8_t* codes, int64_t count, int64_t ahead,
                                        uint16_t* to) {
  static const Fp8Magnitudes table;
  const __m512i t0 = _mm512_load_si512(table.numbers), t1 = _mm512_load_si512(table.numbers + 32);
  const __m512i t2 = _mm512_load_si512(table.numbers + 64);
  const __m512i t3 = _mm512_load_si512(table.numbers + 96);
  const __m512i upper_half = _mm512_set1_epi16(0x40), sign = _mm512_set1_epi16(0x80);
  for (int64_t i = 0; i < count; i += bf16_lanes) {
    const int64_t left = std::min(bf16_lanes, count - i);
    const auto some = static_cast<__mmask32>((uint64_t{1} << left) - 1);
    ask_for(codes + i, ahead);
    const __m512i code = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(some, codes + i));
    // An index is six bits of a code, in two vectors of the table.
    const __m512i magnitude = _mm512_mask_blend_epi16(_mm512_test_epi16_mask(code, upper_half),
                                                      _mm512_permutex2var_epi16(t0, code, t1),
                                                      _mm512_permutex2var_epi16(t2, code, t3));
    const __m512i signs = _mm512_slli_epi16(_mm512_and_si512(code, sign), 8);
    _mm512_mask_storeu_epi16(to + i, some, _mm512_or_si512(magnitude, signs));
  }
}

}  // namespace pecia::kernels::cpu
