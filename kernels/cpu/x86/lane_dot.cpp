// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/lane_dot.hpp"

#include "kernels/cpu/x86/vectors.hpp"
#include "lib/base/core/codes.hpp"

namespace pecia::kernels::cpu {
namespace {

/// Rows are read one after the other, since the hardware follows few readers at a time (Zen 4:
/// 30 GB/s of one row after the other, 18 of sixteen at once).
struct Bf16Column {
  static constexpr int together = 1;
  const uint16_t* numbers;
  int64_t ahead;

  PECIA_BF16_CODE __m512bh next(int64_t i) const {
    ask_for(numbers + i, ahead);
    return load_pairs(numbers + i);
  }
  PECIA_BF16_CODE __m512bh last(int64_t i, int64_t count) const {
    return load_some(numbers + i, count);
  }
  float factor() const { return 1; }
};

PECIA_BF16_CODE inline __m512 widen(__m128i codes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
}

/// Codes alone; the scale comes last, to the sum.
struct Int8Column {
  static constexpr int together = 1;
  const int8_t* codes;
  float scale;
  int64_t ahead;

  Int8Column() = default;
  Int8Column(const CodeRows& rows, int64_t bytes_ahead)
      : codes(static_cast<const int8_t*>(rows.data)), scale(*rows.factors()), ahead(bytes_ahead) {}

  PECIA_BF16_CODE static __m512bh numbers(__m256i codes) {
    return _mm512_cvtne2ps_pbh(widen(_mm256_extracti128_si256(codes, 1)),
                               widen(_mm256_castsi256_si128(codes)));
  }
  PECIA_BF16_CODE __m512bh next(int64_t i) const {
    ask_for(codes + i, ahead);
    return numbers(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i)));
  }
  PECIA_BF16_CODE __m512bh last(int64_t i, int64_t count) const {
    const auto mask = static_cast<__mmask32>((uint64_t{1} << std::min<int64_t>(count, 32)) - 1);
    return numbers(_mm256_maskz_loadu_epi8(mask, codes + i));
  }
  float factor() const { return scale; }
};

/// The 16 numbers of a group are in a table, by which its words are replaced, four bits after four.
/// A group of 128 may be of 2 or 4 groups that have tables of their own.
template <int64_t kSharedBy>
struct Int4Column {
  static constexpr int together = 4;
  const __m512i* groups;
  const float* scales;
  int64_t ahead;
  __m512i words = {}, table = {};

  Int4Column() = default;
  Int4Column(const CodeRows& rows, int64_t bytes_ahead)
      : groups(static_cast<const __m512i*>(rows.data)),
        scales(rows.factors()),
        ahead(bytes_ahead) {}

  PECIA_BF16_CODE __m512bh next(int64_t i) {
    if (i % int4_group == 0) {
      ask_for(groups + i / int4_group, ahead);
      words = _mm512_loadu_si512(groups + i / int4_group);
    }
    if (i % kSharedBy == 0) table = int4_numbers_in_bf16(scales + i / kSharedBy * 2);
    const __m512i numbers = _mm512_permutexvar_epi16(words, table);
    words = _mm512_srli_epi16(words, 4);
    return (__m512bh)numbers;
  }
  PECIA_BF16_CODE __m512bh last(int64_t i, int64_t) { return next(i); }  // the group is whole
  float factor() const { return 1; }
};

/// A block's 16 numbers are in a table for each scale.
struct Mxfp4Column {
  static constexpr int together = 4;
  const uint8_t* blocks;
  const uint8_t* scales;
  const Mxfp4Numbers* tables;
  int64_t ahead;

  Mxfp4Column() = default;
  Mxfp4Column(const CodeRows& rows, int64_t bytes_ahead)
      : blocks(static_cast<const uint8_t*>(rows.data)),
        scales(static_cast<const uint8_t*>(rows.scales)),
        tables(mxfp4_numbers()),
        ahead(bytes_ahead) {}

  PECIA_BF16_CODE __m512bh next(int64_t i) const {
    if (i % int4_group == 0) ask_for(blocks + i / 2, ahead);
    return (__m512bh)mxfp4_block_in_bf16(blocks + i / 2, tables[scales[i / mxfp4_block]]);
  }
  PECIA_BF16_CODE __m512bh last(int64_t i, int64_t) const { return next(i); }  // a whole block
  float factor() const { return 1; }
};

/// The same for each of the two blocks of a vector; the matrix's factor comes last, to the sum.
struct Nvfp4Column {
  static constexpr int together = 4;
  const uint8_t* blocks;
  const uint8_t* scales;
  const Nvfp4Numbers* tables;
  float of_matrix;
  int64_t ahead;

  Nvfp4Column() = default;
  Nvfp4Column(const CodeRows& rows, int64_t bytes_ahead)
      : blocks(static_cast<const uint8_t*>(rows.data)),
        scales(static_cast<const uint8_t*>(rows.scales)),
        tables(nvfp4_numbers()),
        of_matrix(rows.factor),
        ahead(bytes_ahead) {}

  PECIA_BF16_CODE __m512bh next(int64_t i) const {
    if (i % int4_group == 0) ask_for(blocks + i / 2, ahead);
    return last(i, bf16_lanes);
  }
  PECIA_BF16_CODE __m512bh last(int64_t i, int64_t count) const {
    return (__m512bh)nvfp4_blocks_in_bf16(blocks + i / 2, scales + i / nvfp4_block, count, tables);
  }
  float factor() const { return of_matrix; }
};

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

constexpr int64_t few_lines = 256, few_lines_of_slice = 1024;  // bytes

/// The arguments but the columns, which are of some type.
struct Rows {
  const uint16_t* a;
  int64_t a_stride;
  float* c;
  int64_t c_stride;
  int64_t rows, columns, depth;
  bool accumulate;
  int64_t near_bytes = few_lines;  ///< columns as short as this are read together
};

/// sums[o][r] += Σ_i a[r, i] · b_o[i], each spread over lanes. A column has `next(i)`, which gives
/// its numbers from i on for i = 0, 32, 64 … It also has `last(i, count)`, which gives `count`
/// numbers and then zeros.
template <int kRows, int kTogether, class Column>
PECIA_BF16_CODE inline void add_products(const Rows& args, Column (&columns)[kTogether],
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
PECIA_BF16_CODE inline void dot_tile(const Rows& args, const ColumnOf& column_of, int64_t first,
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
/// for each of the sums that stay in registers. A slice's columns are short up to 1 KiB: one after
/// the other, the hardware also reads what is behind each (Zen 5: 15 GB/s of pieces of 512 bytes,
/// and 23 together).
enum class Columns { apart, near };

template <int kRows, Columns kColumns, class ColumnOf>
PECIA_BF16_CODE void dot_rows_of(const Rows& args, const ColumnOf& column_of, int64_t begin,
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
PECIA_BF16_CODE void dot_few_rows(const Rows& args, const ColumnOf& column_of) {
  constexpr int64_t first_cache = 24 * 1024, second_cache = 128 * 1024;
  const int64_t row_bytes = std::max<int64_t>(1, args.depth) * 2;
  const int64_t most_rows = std::clamp<int64_t>(first_cache / row_bytes, 4, most_dot_rows);
  const int64_t groups = (args.rows + most_rows - 1) / most_rows;
  const int64_t panel = groups == 1 ? std::max<int64_t>(1, args.columns)
                                    : std::max<int64_t>(16, second_cache / row_bytes / 16 * 16);
  for (int64_t begin = 0; begin < args.columns; begin += panel)
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t row = args.rows * group / groups;
      Rows part = args;
      part.rows = args.rows * (group + 1) / groups - row;
      part.a += row * args.a_stride;
      part.c += row * args.c_stride;
      const int64_t end = std::min(args.columns, begin + panel);
      if (group == 0 && row_bytes > args.near_bytes)
        dot_rows_of<most_dot_rows, Columns::apart>(part, column_of, begin, end);
      else
        dot_rows_of<most_dot_rows, Columns::near>(part, column_of, begin, end);
    }
}

}  // namespace

void lane_dot_bf16(const DotBf16Args& args) {
  constexpr auto bytes = static_cast<int64_t>(sizeof(uint16_t));
  const bool slice = args.ahead == 0 && args.b_stride != args.depth;
  const int64_t near_bytes = slice ? few_lines_of_slice : few_lines;
  const int64_t ahead =
      args.ahead != 0 ? args.ahead * bytes : bytes_ahead(args.b_stride * bytes, args.depth * bytes);
  dot_few_rows({args.a, args.a_stride, args.c, args.c_stride, args.rows, args.columns, args.depth,
                args.accumulate, near_bytes},
               [&](int64_t o) {
                 return Bf16Column{args.b + o * args.b_stride, ahead};
               });
}

void lane_dot_codes(const DotCodesArgs& args) {
  const Rows rows{args.a,    args.a_stride, args.c,     args.c_stride,
                  args.rows, args.columns,  args.depth, args.accumulate};
  const int64_t ahead = bytes_ahead_of(args.b, args.depth);
  if (args.b.dtype == DType::int8)
    dot_few_rows(rows, [&](int64_t o) { return Int8Column(args.b.from(o), ahead); });
  else if (args.b.dtype == DType::mxfp4)
    dot_few_rows(rows, [&](int64_t o) { return Mxfp4Column(args.b.from(o), ahead); });
  else if (args.b.dtype == DType::nvfp4)
    dot_few_rows(rows, [&](int64_t o) { return Nvfp4Column(args.b.from(o), ahead); });
  else if (args.b.shared_by == 32)
    dot_few_rows(rows, [&](int64_t o) { return Int4Column<32>(args.b.from(o), ahead); });
  else if (args.b.shared_by == 64)
    dot_few_rows(rows, [&](int64_t o) { return Int4Column<64>(args.b.from(o), ahead); });
  else
    dot_few_rows(rows, [&](int64_t o) { return Int4Column<int4_group>(args.b.from(o), ahead); });
}

}  // namespace pecia::kernels::cpu
