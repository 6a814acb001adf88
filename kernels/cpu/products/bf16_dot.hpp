// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Products of few rows of bf16 with columns that come in vectors of bf16, however they are stored.
/// The files that include it are compiled for AVX512-BF16 by PECIA_BF16_CODE.

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

/// Begins to bring the line `ahead` bytes after `from` into the second cache. The line need not
/// exist. Rows that are read once are asked for while the rows before them are multiplied, because
/// the processor's own guesses end with a page. (Zen 4 has no room for them in the first cache: a
/// step of four sequences of 8192 tokens takes 59 ms there against 45 ms.)
inline void ask_for(const void* from, int64_t ahead) {
  _mm_prefetch(reinterpret_cast<const char*>(reinterpret_cast<intptr_t>(from) + ahead),
               _MM_HINT_T1);
}

/// Returns how many bytes to ask ahead by, in whole rows of `row_bytes`, if the rows after these
/// are read next.
inline int64_t bytes_ahead(int64_t row_bytes) {
  constexpr int64_t enough = 8192;
  return row_bytes > 0 ? (enough + row_bytes - 1) / row_bytes * row_bytes : 0;
}

/// Returns the sums of the lanes of sixteen vectors, each sum in its own lane. Each block of 128
/// bits is summed as (a0 + a2) + (a1 + a3), and then the blocks as (b0 + b1) + (b2 + b3).
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

/// c[r, o] = factor_o · Σ_i a[r, i] · b_o[i]. With `accumulate` this is added to c[r, o].
struct FewRows {
  const uint16_t* a;
  int64_t a_stride;
  float* c;
  int64_t c_stride;
  int64_t rows, columns, depth;
  bool accumulate;
};

/// sums[o][r] += Σ_i a[r, i] · b_o[i], each spread over lanes. A column has `next(i)`, which gives
/// its numbers from i on for i = 0, 32, 64 … It also has `last(i, count)`, which gives `count`
/// numbers and then zeros.
template <int kRows, int kTogether, class Column>
PECIA_BF16_CODE inline void add_products(const FewRows& args, Column (&columns)[kTogether],
                                         __m512 (&sums)[kTogether][kRows]) {
  int64_t i = 0;
  for (; i + bf16_lanes <= args.depth; i += bf16_lanes) {
    __m512bh w[kTogether];
#pragma GCC unroll 16
    for (int o = 0; o < kTogether; ++o) w[o] = columns[o].next(i);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512bh x = load_pairs(args.a + r * args.a_stride + i);
#pragma GCC unroll 16
      for (int o = 0; o < kTogether; ++o) sums[o][r] = _mm512_dpbf16_ps(sums[o][r], x, w[o]);
    }
  }
  if (i >= args.depth) return;
  __m512bh w[kTogether];
#pragma GCC unroll 16
  for (int o = 0; o < kTogether; ++o) w[o] = columns[o].last(i, args.depth - i);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const __m512bh x = load_some(args.a + r * args.a_stride + i, args.depth - i);
#pragma GCC unroll 16
    for (int o = 0; o < kTogether; ++o) sums[o][r] = _mm512_dpbf16_ps(sums[o][r], x, w[o]);
  }
}

/// Makes up to sixteen sums, for all rows and `count` columns from `first` on. There are kRows
/// rows. The columns are taken kTogether at a time, in kPasses passes.
template <int kRows, int kTogether, int kPasses, class ColumnOf>
PECIA_BF16_CODE inline void dot_tile(const FewRows& args, const ColumnOf& column_of, int64_t first,
                                     int64_t count) {
  static_assert(kRows * kTogether * kPasses <= 16);
  using Column = decltype(column_of(0));
  __m512 totals[16];
  float factors[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) totals[i] = _mm512_setzero_ps();
  for (int pass = 0; pass < kPasses && pass * kTogether < count; ++pass) {
    const int done = pass * kTogether;
    Column columns[kTogether];
    __m512 sums[kTogether][kRows];
#pragma GCC unroll 16
    for (int o = 0; o < kTogether; ++o) {  // columns past the end repeat the last
      columns[o] = column_of(first + std::min<int64_t>(done + o, count - 1));
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) sums[o][r] = _mm512_setzero_ps();
    }
    add_products<kRows, kTogether>(args, columns, sums);
#pragma GCC unroll 16
    for (int o = 0; o < kTogether; ++o) {
      factors[done + o] = columns[o].factor();
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) totals[(done + o) * kRows + r] = sums[o][r];
    }
  }
  alignas(64) float products[16];
  _mm512_store_ps(products, sums_of_lanes(totals));
  for (int r = 0; r < kRows; ++r) {
    float* const to = args.c + r * args.c_stride + first;
    for (int64_t o = 0; o < count; ++o) {
      const float product = factors[o] * products[o * kRows + r];
      to[o] = args.accumulate ? to[o] + product : product;
    }
  }
}

constexpr int most_dot_rows = 8;

/// How columns are read. Columns far `apart` in memory are read one after the other, since the
/// hardware follows few readers at a time (Zen 4: 30 GB/s of one row after the other, 18 of sixteen
/// at once). Columns that are `near`, in a cache or as short as a few lines, are read together, one
/// for each of the sums that stay in registers.
enum class Columns { apart, near };

template <int kRows, Columns kColumns, class ColumnOf>
PECIA_BF16_CODE void dot_rows_of(const FewRows& args, const ColumnOf& column_of, int64_t begin,
                                 int64_t end) {
  if (args.rows == kRows) {
    constexpr int most = 16 / kRows;
    constexpr int together =
        std::min(most, kColumns == Columns::apart ? decltype(column_of(0))::together : 8);
    constexpr int passes = most / together, width = passes * together;
    for (int64_t o = begin; o < end; o += width)
      dot_tile<kRows, together, passes>(args, column_of, o, std::min<int64_t>(width, end - o));
  } else if constexpr (kRows > 1) {
    dot_rows_of<kRows - 1, kColumns>(args, column_of, begin, end);
  }
}

/// Rows are cut into groups that stay in the first cache. The first group brings some columns into
/// the second cache, where the other groups find them. `column_of(o)` makes a column, which also
/// has `factor()`. Where columns are apart, the column's `together` says how many are read at once.
/// A sum's order of additions depends neither on its neighbours nor on the cuts.
template <class ColumnOf>
PECIA_BF16_CODE void dot_few_rows(const FewRows& args, const ColumnOf& column_of) {
  constexpr int64_t first_cache = 24 * 1024, second_cache = 128 * 1024, few_lines = 256;
  const int64_t row_bytes = std::max<int64_t>(1, args.depth) * 2;
  const int64_t most_rows = std::clamp<int64_t>(first_cache / row_bytes, 4, most_dot_rows);
  const int64_t groups = (args.rows + most_rows - 1) / most_rows;
  const int64_t panel = groups == 1 ? std::max<int64_t>(1, args.columns)
                                    : std::max<int64_t>(16, second_cache / row_bytes / 16 * 16);
  for (int64_t begin = 0; begin < args.columns; begin += panel)
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t row = args.rows * group / groups;
      FewRows part = args;
      part.rows = args.rows * (group + 1) / groups - row;
      part.a += row * args.a_stride;
      part.c += row * args.c_stride;
      const int64_t end = std::min(args.columns, begin + panel);
      if (group == 0 && row_bytes > few_lines)
        dot_rows_of<most_dot_rows, Columns::apart>(part, column_of, begin, end);
      else
        dot_rows_of<most_dot_rows, Columns::near>(part, column_of, begin, end);
    }
}

}  // namespace pecia::kernels::cpu
