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

/// Two neighbours in all lanes.
PECIA_BF16_CODE inline __m512bh spread_pair(const uint16_t* from) {
  int pair;
  __builtin_memcpy(&pair, from, sizeof pair);
  return (__m512bh)_mm512_set1_epi32(pair);
}

/// Makes pairs of two rows: those of columns 0 … 15, and of columns 16 … 31.
class PairsOfRows {
 public:
  PECIA_BF16_CODE PairsOfRows() {
    // Lane i in elements of the first row, below 32, and the second.
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

/// Begins to bring the line `ahead` bytes after `from` into the first cache; there need be none.
/// Rows that are read once are asked for while those before them are multiplied: the processor's
/// own guesses end with a page.
inline void ask_for(const void* from, int64_t ahead) {
  _mm_prefetch(reinterpret_cast<const char*>(reinterpret_cast<intptr_t>(from) + ahead),
               _MM_HINT_T0);
}

constexpr int max_dot_rows = 4, dot_columns = 4;

/// The sums of the lanes of sixteen vectors, each in its lane: ((a0 + a2) + (a1 + a3)) of each
/// block of 128 bits, then (b0 + b1) + (b2 + b3) of the blocks.
PECIA_BF16_CODE inline __m512 sums_of_lanes(const __m512 (&v)[16]) {
  __m512 t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    t[i] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]),
                         _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512d a = _mm512_castps_pd(t[2 * i]), b = _mm512_castps_pd(t[2 * i + 1]);
    t[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  // Now t[i] has in each block parts of the sums of v[4 · i] … v[4 · i + 3].
#pragma GCC unroll 2
  for (int width = 2; width > 0; --width)
#pragma GCC unroll 2
    for (int i = 0; i < width; ++i)
      t[i] = _mm512_add_ps(_mm512_shuffle_f32x4(t[2 * i], t[2 * i + 1], 0x88),
                           _mm512_shuffle_f32x4(t[2 * i], t[2 * i + 1], 0xdd));
  return t[0];
}

/// c[r, o] = factor_o · Σ_i a[r, i] · b_o[i], or += it, of `kRows` rows and up to kColumns columns.
struct DotTile {
  const uint16_t* a;
  int64_t a_stride;
  float* c;
  int64_t c_stride;
  int64_t depth;
  bool accumulate;
};

/// A column has `next(i)`, its numbers from i on for i = 0, 32, 64 …, `last(i, count)`, of which
/// `count` are there and the others zeros, and `factor()`. Missing columns are copies of the last.
/// A sum's order of additions depends neither on its neighbours nor on the tile.
template <int kRows, int kColumns, class Column>
PECIA_BF16_CODE inline void dot_tile(const DotTile& tile, Column (&columns)[kColumns],
                                     int64_t count) {
  static_assert(kRows * kColumns <= 16);
  __m512 sums[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) sums[i] = _mm512_setzero_ps();
  int64_t i = 0;
  for (; i + bf16_lanes <= tile.depth; i += bf16_lanes) {
    __m512bh x[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) x[r] = load_pairs(tile.a + r * tile.a_stride + i);
#pragma GCC unroll 16
    for (int o = 0; o < kColumns; ++o) {
      const __m512bh w = columns[o].next(i);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
        sums[r * kColumns + o] = _mm512_dpbf16_ps(sums[r * kColumns + o], x[r], w);
    }
  }
  if (i < tile.depth) {
    __m512bh x[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
      x[r] = load_some(tile.a + r * tile.a_stride + i, tile.depth - i);
#pragma GCC unroll 16
    for (int o = 0; o < kColumns; ++o) {
      const __m512bh w = columns[o].last(i, tile.depth - i);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
        sums[r * kColumns + o] = _mm512_dpbf16_ps(sums[r * kColumns + o], x[r], w);
    }
  }
  alignas(64) float totals[16];
  _mm512_store_ps(totals, sums_of_lanes(sums));
  for (int r = 0; r < kRows; ++r) {
    float* const to = tile.c + r * tile.c_stride;
    for (int64_t o = 0; o < count; ++o) {
      const float product = columns[o].factor() * totals[r * kColumns + o];
      to[o] = tile.accumulate ? to[o] + product : product;
    }
  }
}

template <int kRows, class Column>
PECIA_BF16_CODE void dot_some_rows(int64_t rows, const DotTile& tile,
                                   Column (&columns)[dot_columns], int64_t count) {
  if (rows == kRows) return dot_tile<kRows>(tile, columns, count);
  if constexpr (kRows > 1) dot_some_rows<kRows - 1>(rows, tile, columns, count);
}

/// All `rows` with up to four columns, which stay in the first cache meanwhile.
template <class Column>
PECIA_BF16_CODE void dot_all_rows(int64_t rows, DotTile tile, const Column (&columns)[dot_columns],
                                  int64_t count) {
  const int64_t groups = (rows + max_dot_rows - 1) / max_dot_rows;
  for (int64_t group = 0; group < groups; ++group) {
    Column fresh[dot_columns] = {columns[0], columns[1], columns[2], columns[3]};
    dot_some_rows<max_dot_rows>(std::min<int64_t>(max_dot_rows, rows - group * max_dot_rows), tile,
                                fresh, count);
    tile.a += max_dot_rows * tile.a_stride;
    tile.c += max_dot_rows * tile.c_stride;
  }
}

}  // namespace pecia::kernels::cpu
