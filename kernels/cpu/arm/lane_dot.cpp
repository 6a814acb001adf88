// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/lane_dot.hpp"

#include "kernels/cpu/arm/codes.hpp"
#include "lib/base/core/codes.hpp"

namespace pecia::kernels::cpu {
namespace {

// A row's sums of a column take four vectors, 16 of 32 registers. Rows beyond these find the columns
// in a cache.
constexpr int most_dot_rows = 4;
constexpr int64_t columns_of_block = 16;

struct Bf16Column {
  const uint16_t* numbers;
  int64_t ahead;

  PECIA_BF16_CODE Numbers32 next(int64_t i) const {
    ask_for(numbers + i, ahead);
    return {{load8(numbers + i), load8(numbers + i + 8), load8(numbers + i + 16),
             load8(numbers + i + 24)}};
  }
  PECIA_BF16_CODE Numbers32 last(int64_t i, int64_t count) const {
    Numbers32 found;
    for (int v = 0; v < 4; ++v) found.at[v] = load_up_to_8(numbers + i + 8 * v, count - 8 * v);
    return found;
  }
  float factor() const { return 1; }
};

/// Codes alone; the scale comes last, to the sum.
struct Int8Column {
  const int8_t* codes;
  float scale;
  int64_t ahead;

  Int8Column(const CodeRows& rows, int64_t bytes_ahead)
      : codes(static_cast<const int8_t*>(rows.data)), scale(*rows.factors()), ahead(bytes_ahead) {}

  PECIA_BF16_CODE Numbers32 next(int64_t i) const {
    ask_for(codes + i, ahead);
    return int8_numbers(codes + i, bf16_lanes, 1);
  }
  PECIA_BF16_CODE Numbers32 last(int64_t i, int64_t count) const {
    return int8_numbers(codes + i, count, 1);
  }
  float factor() const { return scale; }
};

/// A group of 128 may be of 2 or 4 groups that have tables of their own.
struct Int4Column {
  const uint16_t* words;
  const float* scales;
  int64_t shared_by, ahead;
  NumberTable table = {};

  Int4Column(const CodeRows& rows, int64_t bytes_ahead)
      : words(static_cast<const uint16_t*>(rows.data)),
        scales(rows.factors()),
        shared_by(rows.shared_by),
        ahead(bytes_ahead) {}

  PECIA_BF16_CODE Numbers32 next(int64_t i) {
    const uint16_t* const group = words + i / int4_group * bf16_lanes;
    if (i % int4_group == 0) ask_for(group, ahead);
    if (i % shared_by == 0) table = NumberTable::of_int4(scales + i / shared_by * 2);
    return int4_numbers(group, static_cast<int>(i % int4_group / bf16_lanes * 4), table);
  }
  PECIA_BF16_CODE Numbers32 last(int64_t i, int64_t) { return next(i); }  // the group is whole
  float factor() const { return 1; }
};

/// A block's 16 numbers are in a table for each scale.
struct Mxfp4Column {
  const uint8_t *blocks, *scales;
  const Mxfp4Numbers* tables;
  int64_t ahead;

  Mxfp4Column(const CodeRows& rows, int64_t bytes_ahead)
      : blocks(static_cast<const uint8_t*>(rows.data)),
        scales(static_cast<const uint8_t*>(rows.scales)),
        tables(mxfp4_numbers()),
        ahead(bytes_ahead) {}

  PECIA_BF16_CODE Numbers32 next(int64_t i) const {
    if (i % int4_group == 0) ask_for(blocks + i / 2, ahead);
    const NumberTable table(tables[scales[i / mxfp4_block]]);
    return fp4_numbers(blocks + i / 2, table, table);
  }
  PECIA_BF16_CODE Numbers32 last(int64_t i, int64_t) const { return next(i); }  // a whole block
  float factor() const { return 1; }
};

/// The same for each of two blocks; the matrix's factor comes last, to the sum.
struct Nvfp4Column {
  const uint8_t *blocks, *scales;
  const Nvfp4Numbers* tables;
  float of_matrix;
  int64_t ahead;

  Nvfp4Column(const CodeRows& rows, int64_t bytes_ahead)
      : blocks(static_cast<const uint8_t*>(rows.data)),
        scales(static_cast<const uint8_t*>(rows.scales)),
        tables(nvfp4_numbers()),
        of_matrix(rows.factor),
        ahead(bytes_ahead) {}

  PECIA_BF16_CODE Numbers32 next(int64_t i) const {
    if (i % int4_group == 0) ask_for(blocks + i / 2, ahead);
    const uint8_t* const scale = scales + i / nvfp4_block;
    return fp4_numbers(blocks + i / 2, NumberTable(tables[scale[0]]),
                       NumberTable(tables[scale[1]]));
  }
  /// One block, and zeros, where no more than `count` numbers are left and these are of one.
  PECIA_BF16_CODE Numbers32 last(int64_t i, int64_t count) const {
    if (count > nvfp4_block) return next(i);
    Numbers32 numbers = {};
    NumberTable(tables[scales[i / nvfp4_block]])
        .look_up(codes_of_bytes(vld1_u8(blocks + i / 2)), numbers.at);
    return numbers;
  }
  float factor() const { return of_matrix; }
};

/// The arguments but the columns, which are of some type.
struct Rows {
  const uint16_t* a;
  int64_t a_stride;
  float* c;
  int64_t c_stride;
  int64_t rows, columns, depth;
  bool accumulate;
};

/// c (+)= the sums of kRows rows and one column. Each vector of 32 elements has sums of its own,
/// which do not wait for each other; they are added as (s0 + s1) + (s2 + s3), and then their lanes.
template <int kRows, class Column>
PECIA_BF16_CODE inline void dot_column(const Rows& args, Column column, float* c) {
  float32x4_t sums[kRows][4];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) sums[r][v] = vdupq_n_f32(0);
  int64_t i = 0;
  for (; i + bf16_lanes <= args.depth; i += bf16_lanes) {
    const Numbers32 numbers = column.next(i);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v)
        sums[r][v] =
            vbfdotq_f32(sums[r][v], load8(args.a + r * args.a_stride + i + 8 * v), numbers.at[v]);
  }
  if (const int64_t left = args.depth - i; left > 0) {
    const Numbers32 numbers = column.last(i, left);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v)
        sums[r][v] = vbfdotq_f32(sums[r][v],
                                 load_up_to_8(args.a + r * args.a_stride + i + 8 * v, left - 8 * v),
                                 numbers.at[v]);
  }
  const float factor = column.factor();
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const float32x4_t sum =
        vaddq_f32(vaddq_f32(sums[r][0], sums[r][1]), vaddq_f32(sums[r][2], sums[r][3]));
    const float product = factor * vaddvq_f32(sum);
    float& to = c[r * args.c_stride];
    to = args.accumulate ? to + product : product;
  }
}

template <int kRows, class ColumnOf>
PECIA_BF16_CODE void dot_columns(const Rows& args, const ColumnOf& column_of, int64_t begin,
                                 int64_t end) {
  if (args.rows == kRows) {
    for (int64_t o = begin; o < end; ++o) dot_column<kRows>(args, column_of(o), args.c + o);
  } else if constexpr (kRows > 1) {
    dot_columns<kRows - 1>(args, column_of, begin, end);
  }
}

/// `column_of(o)` makes a column, which has `next(i)`, its numbers from i on for i = 0, 32, 64 …,
/// `last(i, count)`, of which `count` are there, and `factor()`. A sum's order of additions depends
/// neither on its neighbours nor on the cuts.
template <class ColumnOf>
void dot_few_rows(const Rows& args, const ColumnOf& column_of) {
  for (int64_t begin = 0; begin < args.columns; begin += columns_of_block)
    for (int64_t row = 0; row < args.rows; row += most_dot_rows) {
      Rows part = args;
      part.rows = std::min<int64_t>(most_dot_rows, args.rows - row);
      part.a += row * args.a_stride;
      part.c += row * args.c_stride;
      dot_columns<most_dot_rows>(part, column_of, begin,
                                 std::min(args.columns, begin + columns_of_block));
    }
}

}  // namespace

void lane_dot_bf16(const DotBf16Args& args) {
  constexpr auto bytes = static_cast<int64_t>(sizeof(uint16_t));
  const int64_t ahead =
      args.ahead != 0 ? args.ahead * bytes : bytes_ahead(args.b_stride * bytes, args.depth * bytes);
  dot_few_rows({args.a, args.a_stride, args.c, args.c_stride, args.rows, args.columns, args.depth,
                args.accumulate},
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
  else
    dot_few_rows(rows, [&](int64_t o) { return Int4Column(args.b.from(o), ahead); });
}

}  // namespace pecia::kernels::cpu
