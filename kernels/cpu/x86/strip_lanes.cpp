// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/strip_lanes.hpp"

#include <immintrin.h>

#include <algorithm>

#include "kernels/cpu/x86/vectors.hpp"
#include "kernels/cpu/x86/weigher.hpp"

namespace pecia::kernels::cpu {
namespace {

PECIA_LANES_CODE inline __mmask16 lanes_that_see(const Visible* visible, int64_t key, int half) {
  return visible == nullptr
             ? __mmask16{0xffff}
             : static_cast<__mmask16>((*visible)[key] >> (half * static_cast<int>(half_lanes)));
}

PECIA_LANES_CODE inline __mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>(count >= half_lanes ? 0xffff : (1u << count) - 1);
}

template <int kHalves, bool kAll>
PECIA_LANES_CODE uint32_t weigh_chunk(const ChunkScores& chunk, const float* maxima,
                                      uint16_t* weights, float* sums) {
  constexpr int64_t lanes = kHalves * half_lanes;
  const Weigher weigher;
  __m512 shift[kHalves], sum[kHalves];
  __m512i most[kHalves];
  for (int h = 0; h < kHalves; ++h) {
    shift[h] =
        _mm512_sub_ps(_mm512_set1_ps(units_shift + weight_one), _mm512_loadu_ps(maxima + h * 16));
    sum[h] = _mm512_loadu_ps(sums + h * 16);
    most[h] = _mm512_setzero_si512();
  }
#pragma GCC unroll 4
  for (int64_t key = 0; key < chunk_keys; key += 2)
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      const float* const scores = chunk.scores + key * lanes + h * half_lanes;
      __m512i first = weigher.units(scores, chunk.scales[key], shift[h]);
      __m512i second = weigher.units(scores + lanes, chunk.scales[key + 1], shift[h]);
      if constexpr (!kAll) {
        first = _mm512_maskz_mov_epi32(lanes_that_see(chunk.visible, key, h), first);
        second = _mm512_maskz_mov_epi32(lanes_that_see(chunk.visible, key + 1, h), second);
      }
      const __m512i units = weigher.together(first, second);
      most[h] = _mm512_max_epu16(most[h], units);
      const __m512i weight = weigher.corrected(units);
      sum[h] = _mm512_dpbf16_ps(sum[h], (__m512bh)weight, weigher.ones);
      _mm512_storeu_si512(weights + (key / 2 * lanes + h * half_lanes) * 2, weight);
    }
  uint32_t exceeding = 0;
  for (int h = 0; h < kHalves; ++h) {
    _mm512_storeu_ps(sums + h * 16, sum[h]);
    const uint32_t either =
        _mm512_cmpgt_epu16_mask(most[h], _mm512_set1_epi16(static_cast<short>(most_weight)));
    exceeding |= _pext_u32(either | either >> 1, 0x55555555) << (h * 16);
  }
  return exceeding;
}

/// See StripSteps.
struct VectorLanes {
  template <int kHalves>
  PECIA_LANES_CODE static void pack(const PackQueries& args) {
    constexpr int64_t lanes = kHalves * half_lanes;
    for (int64_t d = 0; d < args.dims; d += 32)
      for (int h = 0; h < kHalves; ++h) {
        __m512i v[sum_lanes];
        load_transposed(args.rows + h * half_lanes * args.dims + d, args.dims, 0, v);
        for (int64_t i = 0; i < sum_lanes; ++i)
          _mm512_storeu_si512(args.packed + ((d / 2 + i) * lanes + h * half_lanes) * 2, v[i]);
      }
  }

  PECIA_LANES_CODE static void pack_values(const PackValues& args) {
    alignas(64) uint16_t order[32];
    for (uint16_t i = 0; i < 32; ++i) order[i] = static_cast<uint16_t>(2 * i);
    const __m512i even = _mm512_load_si512(order);
    const __m512i odd = _mm512_add_epi16(even, _mm512_set1_epi16(1));
    const bool whole = args.keys == chunk_keys && args.width == args.dims;
    for (int64_t d = 0; d < args.dims; d += 32) {
      __m512i lower[sum_lanes], upper[sum_lanes];  // pairs of dims of keys 0 … 15, and 16 … 31
      const uint16_t* const from = args.rows + d;
      if (whole) {
        load_transposed(from, args.row_stride, args.ahead, lower);
        load_transposed(from + half_lanes * args.row_stride, args.row_stride, args.ahead, upper);
      } else {
        const int64_t width = args.width - d;
        load_some_transposed(from, args.row_stride, args.keys, width, lower);
        load_some_transposed(from + half_lanes * args.row_stride, args.row_stride,
                             args.keys - half_lanes, width, upper);
      }
      uint16_t* const to = args.packed + d * chunk_keys;
      for (int64_t i = 0; i < sum_lanes; ++i) {
        _mm512_storeu_si512(to + 2 * i * chunk_keys,
                            _mm512_permutex2var_epi16(lower[i], even, upper[i]));
        _mm512_storeu_si512(to + (2 * i + 1) * chunk_keys,
                            _mm512_permutex2var_epi16(lower[i], odd, upper[i]));
      }
    }
  }

  template <int kHalves>
  PECIA_LANES_CODE static void see(const Positions& positions, Visible& visible) {
    constexpr int groups = kHalves * 2;
    __m512i queries[groups], reaches[groups];
    for (int g = 0; g < groups; ++g) {
      queries[g] = _mm512_loadu_si512(positions.queries + g * 8);
      reaches[g] = _mm512_loadu_si512(positions.reaches + g * 8);
    }
    visible.fill(0);
    for (int64_t key = 0; key < positions.num_keys; ++key) {
      const __m512i position = _mm512_set1_epi64(positions.keys[key]);
      for (int g = 0; g < groups; ++g) {
        // As numbers without a sign, distances below 0 are beyond every reach.
        const __m512i distance = _mm512_sub_epi64(queries[g], position);
        const __mmask8 seen = _mm512_cmplt_epu64_mask(distance, reaches[g]);
        visible[key] |= static_cast<uint32_t>(seen) << (g * 8);
      }
    }
  }

  template <int kHalves>
  static uint32_t weigh(const ChunkScores& chunk, const float* maxima, uint16_t* weights,
                        float* sums) {
    return chunk.visible == nullptr ? weigh_chunk<kHalves, true>(chunk, maxima, weights, sums)
                                    : weigh_chunk<kHalves, false>(chunk, maxima, weights, sums);
  }

  template <int kHalves>
  PECIA_LANES_CODE static void find_highest(const ChunkScores& chunk, float* highest) {
    constexpr int64_t lanes = kHalves * half_lanes;
    const __m512 most = _mm512_set1_ps(most_units), least = _mm512_set1_ps(-most_units);
    for (int h = 0; h < kHalves; ++h) {
      __m512 found = _mm512_loadu_ps(highest + h * 16);
      for (int64_t key = 0; key < chunk_keys; ++key) {
        float* const at = chunk.scores + key * lanes + h * half_lanes;
        const __m512 scale = _mm512_set1_ps(chunk.scales[key]);
        const __m512 score = _mm512_loadu_ps(at);
        const __m512 units = _mm512_mul_ps(score, scale);
        const __mmask16 above = _mm512_cmp_ps_mask(units, most, _CMP_GT_OQ);
        const __mmask16 below = _mm512_cmp_ps_mask(units, least, _CMP_LT_OQ);
        if ((above | below) != 0) {
          _mm512_mask_storeu_ps(at, above, _mm512_div_ps(most, scale));
          _mm512_mask_storeu_ps(at, below, _mm512_div_ps(least, scale));
        }
        found = _mm512_mask_max_ps(found, lanes_that_see(chunk.visible, key, h), found,
                                   bounded_units(score, scale));
      }
      _mm512_storeu_ps(highest + h * 16, found);
    }
  }

  template <int kHalves>
  PECIA_LANES_CODE static void raise(const float* highest, uint32_t some, const StripRows& rows) {
    constexpr int64_t lanes = kHalves * half_lanes;
    const __m512 unit = _mm512_set1_ps(1 / power_units);
    for (int h = 0; h < kHalves; ++h) {
      const auto chosen = static_cast<__mmask16>(some >> (h * 16));
      const __m512 before = _mm512_loadu_ps(rows.maxima + h * 16);
      const __m512 power =
          _mm512_roundscale_ps(_mm512_mul_ps(_mm512_loadu_ps(highest + h * 16), unit),
                               _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
      const __m512 maximum = _mm512_mask_max_ps(before, chosen, before,
                                                _mm512_mul_ps(power, _mm512_set1_ps(power_units)));
      const __mmask16 rises = _mm512_cmp_ps_mask(maximum, before, _CMP_GT_OQ);
      if (rises == 0) continue;
      const __m512 factor =
          _mm512_mask_scalef_ps(_mm512_set1_ps(1.0f), rises, _mm512_set1_ps(1.0f),
                                _mm512_mul_ps(_mm512_sub_ps(before, maximum), unit));
      const auto scale = [&](float* at) PECIA_LANES_CODE {
        _mm512_storeu_ps(at, _mm512_mul_ps(_mm512_loadu_ps(at), factor));
      };
      _mm512_storeu_ps(rows.maxima + h * 16, maximum);
      scale(rows.sums + h * 16);
      for (int64_t d = 0; d < rows.dims; ++d) scale(rows.out + d * lanes + h * half_lanes);
    }
  }

  template <int kHalves>
  PECIA_LANES_CODE static void write(const StripRows& rows, const RowsOfLanes& to) {
    constexpr int64_t lanes = kHalves * half_lanes;
    for (int64_t first = 0; first < to.count; first += half_lanes)
      for (int64_t d = 0; d < to.width; d += half_lanes) {
        __m512i v[sum_lanes];
        for (int64_t i = 0; i < sum_lanes; ++i)
          v[i] = _mm512_loadu_si512(rows.out + (d + i) * lanes + first);
        transpose(v);
        const __mmask16 some = first_lanes(to.width - d);
        for (int64_t lane = first; lane < std::min(to.count, first + half_lanes); ++lane)
          _mm512_mask_storeu_ps(to.rows[lane] + d, some,
                                _mm512_div_ps(_mm512_castsi512_ps(v[lane - first]),
                                              _mm512_set1_ps(to.numbers[lane])));
      }
  }

  template <int kHalves>
  PECIA_LANES_CODE static void read(const StripRows& rows, const RowsOfLanes& from) {
    constexpr int64_t lanes = kHalves * half_lanes;
    for (int64_t first = 0; first < from.count; first += half_lanes)
      for (int64_t d = 0; d < from.width; d += half_lanes) {
        __m512i v[sum_lanes];
        const __mmask16 some = first_lanes(from.width - d);
        for (int64_t i = 0; i < sum_lanes; ++i) {
          const int64_t lane = first + i;
          v[i] = lane >= from.count ? _mm512_setzero_si512()
                                    : _mm512_castps_si512(_mm512_mul_ps(
                                          _mm512_maskz_loadu_ps(some, from.rows[lane] + d),
                                          _mm512_set1_ps(from.numbers[lane])));
        }
        transpose(v);
        for (int64_t i = 0; i < sum_lanes && d + i < from.width; ++i)
          _mm512_storeu_si512(rows.out + (d + i) * lanes + first, v[i]);
      }
  }
};

}  // namespace

const Lanes& vector_lanes() {
  static constexpr Lanes lanes = lanes_of<VectorLanes>();
  return lanes;
}

}  // namespace pecia::kernels::cpu
