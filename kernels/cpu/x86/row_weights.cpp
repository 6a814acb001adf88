// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/row_weights.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/x86/vectors.hpp"
#include "kernels/cpu/x86/weigher.hpp"

namespace pecia::kernels::cpu {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

PECIA_LANES_CODE inline __mmask16 keys_that_are_seen(__m512 scores) {
  return _mm512_cmp_ps_mask(scores, _mm512_set1_ps(-infinity), _CMP_NEQ_UQ);
}

/// The highest score of keys that are seen, in units, or no_maximum.
PECIA_LANES_CODE float find_highest(const RowScores& row, int64_t begin, int64_t end) {
  __m512 found = _mm512_set1_ps(no_maximum);
  for (int64_t key = begin; key < end; key += half_lanes) {
    const __m512 score = _mm512_loadu_ps(row.scores + key);
    found = _mm512_mask_max_ps(found, keys_that_are_seen(score), found,
                               bounded_units(score, _mm512_loadu_ps(row.scales + key)));
  }
  return _mm512_reduce_max_ps(found);
}

PECIA_LANES_CODE void raise(float highest, const RowState& state) {
  const float maximum = std::max(*state.maximum, std::ceil(highest / power_units) * power_units);
  if (maximum == *state.maximum) return;
  const float factor = std::exp2((*state.maximum - maximum) / power_units);
  *state.maximum = maximum;
  *state.sum *= factor;
  for (int64_t i = 0; i < state.width; ++i) state.out[i] *= factor;
}

/// Returns whether a weight exceeds most_weight or is NaN.
PECIA_LANES_CODE bool weigh(const RowScores& row, float maximum, uint16_t* weights) {
  const Weigher weigher;
  const __m512 shift = _mm512_set1_ps(units_shift + weight_one - maximum);
  const __m512i in_order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  __m512i most = _mm512_setzero_si512();
  const auto units_of = [&](int64_t key) PECIA_LANES_CODE {
    const __m512 scores = _mm512_loadu_ps(row.scores + key);
    const __m512 shifted = _mm512_fmadd_ps(scores, _mm512_loadu_ps(row.scales + key), shift);
    // What is below 0 becomes 0, and NaN, the second operand, stays.
    const __m512 bounded = _mm512_max_ps(_mm512_setzero_ps(), shifted);
    return _mm512_maskz_sub_epi32(keys_that_are_seen(scores), _mm512_castps_si512(bounded),
                                  weigher.magic);
  };
  for (int64_t key = 0; key < row.keys; key += chunk_keys) {
    const __m512i units = _mm512_permutexvar_epi64(
        in_order, _mm512_packus_epi32(units_of(key), units_of(key + half_lanes)));
    most = _mm512_max_epu16(most, units);
    _mm512_storeu_si512(weights + key, weigher.corrected(units));
  }
  return _mm512_cmpgt_epu16_mask(most, _mm512_set1_epi16(static_cast<short>(most_weight))) != 0;
}

}  // namespace

void weigh_row(const RowScores& row, const RowState& state, uint16_t* weights) {
  for (int64_t key = 0; key < row.keys && *state.maximum == no_maximum; key += chunk_keys)
    raise(find_highest(row, key, key + chunk_keys), state);
  if (!weigh(row, *state.maximum, weights)) return;
  raise(find_highest(row, 0, row.keys), state);
  weigh(row, *state.maximum, weights);
}

PECIA_LANES_CODE void add_weights(const WeightRows& rows, float* sums) {
  const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
  for (int64_t first = 0; first < rows.rows; first += sum_lanes) {
    const int64_t count = std::min(sum_lanes, rows.rows - first);
    const auto some = static_cast<__mmask16>((1u << count) - 1);
    __m512 sum = _mm512_maskz_loadu_ps(some, sums + first);
    for (int64_t key = 0; key < rows.keys; key += chunk_keys) {
      __m512i pairs[sum_lanes];
      load_few_transposed(rows.weights + first * rows.stride + key, rows.stride, count, 0, pairs);
      for (const __m512i pair : pairs) sum = _mm512_dpbf16_ps(sum, (__m512bh)pair, ones);
    }
    _mm512_mask_storeu_ps(sums + first, some, sum);
  }
}

PECIA_LANES_CODE void multiply_weights(const WeightRows& rows, const float* factors) {
  for (int64_t r = 0; r < rows.rows; ++r)
    for (int64_t key = 0; key < rows.keys; key += half_lanes) {
      auto* const at = reinterpret_cast<__m256i*>(rows.weights + r * rows.stride + key);
      const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(at)), 16);
      const __m512 weighted =
          _mm512_mul_ps(_mm512_castsi512_ps(wide), _mm512_loadu_ps(factors + key));
      _mm256_storeu_si256(at, (__m256i)_mm512_cvtneps_pbh(weighted));
    }
}

}  // namespace pecia::kernels::cpu
