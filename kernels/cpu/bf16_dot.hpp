#pragma once
/// Products of few rows of bf16 with columns that come in vectors of bf16, however they are stored.
/// For files that are compiled for AVX512-BF16 by PECIA_BF16_CODE.

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

// Highway 1.0 names neither the instruction nor a target that has it.
#define PECIA_BF16_CODE __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

// GCC 12 takes the undefined operands in its own headers for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace pecia::kernels::cpu {

constexpr int64_t bf16_lanes = 32;

PECIA_BF16_CODE inline __m512bh load_pairs(const uint16_t* from) {
  return (__m512bh)_mm512_loadu_si512(from);
}

/// Elements below `count`, zeros after them; `count` may be more than there are.
PECIA_BF16_CODE inline __m512bh load_some(const uint16_t* from, int64_t count) {
  const __mmask32 mask =
      count >= 32 ? ~__mmask32{0} : (__mmask32{1} << std::max<int64_t>(0, count)) - 1;
  return (__m512bh)_mm512_maskz_loadu_epi16(mask, from);
}

constexpr int max_dot_rows = 4, dot_columns = 4;

/// The sums of the lanes of four vectors.
PECIA_BF16_CODE inline __m128 sums_of_lanes(const __m512 (&v)[dot_columns]) {
  const __m512 v01 = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
  const __m512 v23 = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
  const __m512d p01 = _mm512_castps_pd(v01), p23 = _mm512_castps_pd(v23);
  // Now in each block of 128 bits: parts of the four sums, to be added over the blocks.
  alignas(64) float parts[16];
  _mm512_store_ps(parts, _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(p01, p23)),
                                       _mm512_castpd_ps(_mm512_unpackhi_pd(p01, p23))));
  return _mm_add_ps(_mm_add_ps(_mm_load_ps(parts), _mm_load_ps(parts + 4)),
                    _mm_add_ps(_mm_load_ps(parts + 8), _mm_load_ps(parts + 12)));
}

/// c[r, o] = factor_o · Σ_i a[r, i] · b_o[i], or += it, of `kRows` rows and `count` ≤ 4 columns.
struct DotTile {
  const uint16_t* a;
  int64_t a_stride;
  float* c;
  int64_t c_stride;
  int64_t depth;
  bool accumulate;
};

/// A column has `next(i)`, its numbers from i on for i = 0, 32, 64 …, `last(i, count)`, of which
/// `count` are there and the others zeros, and `factor()`. Missing columns are copies of the last,
/// so that a sum's order of additions never depends on its neighbours.
template <int kRows, class Column>
PECIA_BF16_CODE inline void dot_tile(const DotTile& tile, Column (&columns)[dot_columns],
                                     int64_t count) {
  __m512 sums[kRows][dot_columns];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int o = 0; o < dot_columns; ++o) sums[r][o] = _mm512_setzero_ps();
  int64_t i = 0;
  for (; i + bf16_lanes <= tile.depth; i += bf16_lanes) {
    __m512bh x[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) x[r] = load_pairs(tile.a + r * tile.a_stride + i);
#pragma GCC unroll 4
    for (int o = 0; o < dot_columns; ++o) {
      const __m512bh w = columns[o].next(i);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sums[r][o] = _mm512_dpbf16_ps(sums[r][o], x[r], w);
    }
  }
  if (i < tile.depth) {
#pragma GCC unroll 4
    for (int o = 0; o < dot_columns; ++o) {
      const __m512bh w = columns[o].last(i, tile.depth - i);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
        sums[r][o] = _mm512_dpbf16_ps(sums[r][o],
                                      load_some(tile.a + r * tile.a_stride + i, tile.depth - i), w);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    float total[dot_columns];
    _mm_storeu_ps(total, sums_of_lanes(sums[r]));
    float* const to = tile.c + r * tile.c_stride;
    for (int64_t o = 0; o < count; ++o) {
      const float product = columns[o].factor() * total[o];
      to[o] = tile.accumulate ? to[o] + product : product;
    }
  }
}

template <int kRows, class Column>
PECIA_BF16_CODE void dot_some_rows(int64_t rows, const DotTile& tile,
                                   const Column (&columns)[dot_columns], int64_t count) {
  if (rows == kRows) {
    Column fresh[dot_columns] = {columns[0], columns[1], columns[2], columns[3]};
    return dot_tile<kRows>(tile, fresh, count);
  }
  if constexpr (kRows > 1) dot_some_rows<kRows - 1>(rows, tile, columns, count);
}

/// All `rows` with up to four columns, which stay in the first cache meanwhile.
template <class Column>
PECIA_BF16_CODE void dot_all_rows(int64_t rows, DotTile tile, const Column (&columns)[dot_columns],
                                  int64_t count) {
  for (int64_t row = 0; row < rows; row += max_dot_rows) {
    dot_some_rows<max_dot_rows>(std::min<int64_t>(max_dot_rows, rows - row), tile, columns, count);
    tile.a += max_dot_rows * tile.a_stride;
    tile.c += max_dot_rows * tile.c_stride;
  }
}

}  // namespace pecia::kernels::cpu
