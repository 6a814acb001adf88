// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/bf16_native.hpp"

#include <immintrin.h>

#include "lib/core/isa.hpp"

namespace pecia::kernels::cpu {

bool has_native_bf16() {
  return isa() >= Isa::avx512_bf16;
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) void store_bf16_native(
    const float* x, int64_t count, uint16_t* to) {
  for (int64_t i = 0; i < count; i += 16) {
    const int64_t left = count - i;
    const __mmask16 mask = left < 16 ? static_cast<__mmask16>((1u << left) - 1) : __mmask16{0xffff};
    const __m256bh halves = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, x + i));
    _mm256_mask_storeu_epi16(to + i, mask, (__m256i)halves);
  }
}

}  // namespace pecia::kernels::cpu
