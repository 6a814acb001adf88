// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/softmax_bf16.hpp"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>

// GCC 12 takes the undefined operands in its own headers for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#define PECIA_BF16_CODE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace pecia::kernels::cpu {
namespace {

constexpr int64_t lanes = 16;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float log2_of_e = 1.44269504f;

PECIA_BF16_CODE inline __mmask16 lanes_of(int64_t count) {
  return static_cast<__mmask16>(count >= lanes ? 0xffff : (1u << count) - 1);
}

/// 2^x for x ≤ 0, 0 below −126; NaN stays NaN.
PECIA_BF16_CODE inline __m512 exp2_nonpositive(__m512 x) {
  const __m512 least = _mm512_set1_ps(-126.0f);
  const __mmask16 counts = _mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ);
  const __m512 bounded = _mm512_max_ps(least, x);  // NaN, the second operand, passes
  const __m512 n = _mm512_roundscale_ps(bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(bounded, n);
  // 2^f for |f| ≤ 1/2, fitted: within 1.1e-7 of itself.
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(1.32187e-3f), f, _mm512_set1_ps(9.6717e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.550893e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4022238e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9314686e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_maskz_scalef_ps(counts, p, n);
}

PECIA_BF16_CODE inline float maximum_of(const float* scores, int64_t padded) {
  __m512 maximum = _mm512_loadu_ps(scores);
  for (int64_t j = lanes; j < padded; j += lanes)
    maximum = _mm512_max_ps(maximum, _mm512_loadu_ps(scores + j));
  return _mm512_reduce_max_ps(maximum);
}

PECIA_BF16_CODE void raise(float* out, int64_t width, float factor) {
  for (int64_t i = 0; i < width; ++i) out[i] *= factor;
}

/// There is a factor for each of `keys` scores, or none.
PECIA_BF16_CODE float weigh(const float* scores, int64_t keys, float maximum, const float* factors,
                            uint16_t* weights) {
  const __m512 scale = _mm512_set1_ps(log2_of_e), shift = _mm512_set1_ps(maximum);
  __m512 sum = _mm512_setzero_ps();
  for (int64_t j = 0; j < keys; j += lanes) {
    const __m512 below = _mm512_sub_ps(_mm512_loadu_ps(scores + j), shift);
    __m512 weight = exp2_nonpositive(_mm512_mul_ps(below, scale));
    sum = _mm512_add_ps(sum, weight);
    if (factors != nullptr)
      weight = _mm512_mul_ps(weight, _mm512_maskz_loadu_ps(lanes_of(keys - j), factors + j));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + j),
                        (__m256i)_mm512_cvtneps_pbh(weight));
  }
  return _mm512_reduce_add_ps(sum);
}

}  // namespace

PECIA_BF16_CODE void softmax_block_bf16(const ScoreBlock& block, const OnlineRows& state,
                                        uint16_t* weights, int64_t weights_stride,
                                        const float* factors) {
  const int64_t padded = (block.keys + lanes - 1) / lanes * lanes;
  for (int64_t row = 0; row < block.rows; ++row) {
    float* const scores = block.scores + row * block.stride;
    std::fill(scores + block.keys, scores + padded, -infinity);
    const float before = state.maxima[row];
    const float maximum = std::max(before, maximum_of(scores, padded));
    if (maximum > before) {
      const float factor = std::exp(before - maximum);
      raise(state.out + row * state.out_stride, state.width, factor);
      state.sums[row] *= factor;
      state.maxima[row] = maximum;
    }
    // Nothing seen yet: no shift makes these scores numbers, 0 makes their weights 0 (and NaN NaN).
    state.sums[row] += weigh(scores, block.keys, maximum == -infinity ? 0.0f : maximum, factors,
                             weights + row * weights_stride);
  }
}

}  // namespace pecia::kernels::cpu
