// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/bf16_few_rows.hpp"

#include "kernels/cpu/arm/vectors.hpp"

namespace pecia::kernels::cpu {
namespace {

// 16 sums, 8 operands of rows and 2 of columns, of 32 registers.
constexpr int most_pairs = 4;
constexpr int64_t most_rows = 2 * most_pairs, tile_columns = 8;
// Prefetch distance of columns, in elements.
constexpr int64_t block_ahead = 256;
constexpr int64_t elements_of_line = 32;
constexpr int most_added_rows = 4;

/// From element `begin` of columns that are read together: as far ahead as one block.
int64_t elements_ahead(const DotBf16Args& args, int64_t begin) {
  if (args.ahead != 0) return args.ahead;
  const int64_t block = std::min(block_ahead, args.depth);
  return begin + block < args.depth ? block : tile_columns * args.b_stride + block - args.depth;
}

/// Rows or columns of which the last may be missing: it is read again.
struct Lines {
  const uint16_t* first;
  int64_t stride, count;

  const uint16_t* at(int64_t line) const { return first + std::min(line, count - 1) * stride; }
};

/// sums += eight elements of all rows and columns from i on; `load` reads them.
template <int kPairs, class Load>
[[gnu::always_inline]] PECIA_BF16_CODE inline void add_eight(
    const uint16_t* const (&rows)[2 * kPairs], const uint16_t* const (&columns)[tile_columns],
    const Load& load, BlockSums<kPairs, 2>& sums) {
  bfloat16x8_t first[kPairs], second[kPairs];
#pragma GCC unroll 4
  for (int p = 0; p < kPairs; ++p) {
    const RowPair pair(load(rows[2 * p]), load(rows[2 * p + 1]));
    first[p] = pair.first, second[p] = pair.second;
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const RowPair pair(load(columns[2 * c]), load(columns[2 * c + 1]));
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p) {
      sums.add(p, c, first[p], pair.first);
      sums.add(p, c, second[p], pair.second);
    }
  }
}

/// Up to 2 · kPairs rows and up to eight columns.
template <int kPairs>
PECIA_BF16_CODE void dot_tile(const DotBf16Args& args, int64_t column) {
  const Lines a{args.a, args.a_stride, args.rows};
  const Lines b{args.b + column * args.b_stride, args.b_stride, args.columns - column};
  const uint16_t *rows[2 * kPairs], *columns[tile_columns];
  for (int r = 0; r < 2 * kPairs; ++r) rows[r] = a.at(r);
  for (int64_t o = 0; o < tile_columns; ++o) columns[o] = b.at(o);
  BlockSums<kPairs, 2> sums;
  float* const c = args.c + column;
  if (args.accumulate)
    sums.load_some(c, args.c_stride, args.rows, b.count);
  else
    sums.set_zero();
  int64_t i = 0;
  for (; i + 8 <= args.depth; i += 8) {
    if (i % elements_of_line == 0) {
      const int64_t ahead = elements_ahead(args, i) * static_cast<int64_t>(sizeof(uint16_t));
      for (const uint16_t* const from : columns) ask_for(from + i, ahead);
    }
    add_eight<kPairs>(
        rows, columns, [i](const uint16_t* line) PECIA_BF16_CODE { return load8(line + i); }, sums);
  }
  if (const int64_t left = args.depth - i; left > 0)
    add_eight<kPairs>(
        rows, columns,
        [i, left](const uint16_t* line) PECIA_BF16_CODE { return load_up_to_8(line + i, left); },
        sums);
  sums.store_some(c, args.c_stride, args.rows, b.count);
}

/// Loads the first `count` numbers, and zeros.
inline float32x4_t load_up_to_4(const float* from, int64_t count) {
  if (count >= 4) return vld1q_f32(from);
  float numbers[4] = {};
  if (count > 0) std::copy_n(from, count, numbers);
  return vld1q_f32(numbers);
}
inline void store_up_to_4(float32x4_t v, float* to, int64_t count) {
  if (count >= 4) return vst1q_f32(to, v);
  float numbers[4];
  vst1q_f32(numbers, v);
  if (count > 0) std::copy_n(numbers, count, to);
}

/// Two neighbours in all lanes.
PECIA_BF16_CODE inline bfloat16x8_t spread_pair(const uint16_t* from) {
  uint32_t pair;
  std::memcpy(&pair, from, sizeof pair);
  return vreinterpretq_bf16_u32(vdupq_n_u32(pair));
}

/// Columns [column, column + 16), as far as they are there, by BFDOT with pairs of rows of b.
template <int kRows>
PECIA_BF16_CODE void add_tile(const AddRowsArgs& args, int64_t column) {
  constexpr int64_t vectors = 4, element_bytes = sizeof(uint16_t);
  const int64_t count = args.columns - column;
  float32x4_t sums[kRows][vectors];
  float* const c = args.c + column;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      sums[r][v] = load_up_to_4(c + r * args.c_stride + 4 * v, count - 4 * v);
  const uint16x8_t zeros = vdupq_n_u16(0);
  for (int64_t j = 0; j < args.depth; j += 2) {
    const uint16_t* const first = args.b + j * args.b_stride + column;
    const uint16_t* const second = first + args.b_stride;
    const bool both = j + 1 < args.depth;
    ask_for(first, args.ahead * element_bytes);
    ask_for(second, args.ahead * element_bytes);
    bfloat16x8_t values[vectors];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const auto load = [&](const uint16_t* from) PECIA_BF16_CODE {
        return vreinterpretq_u16_bf16(load_up_to_8(from + 8 * half, count - 8 * half));
      };
      const uint16x8_t x = load(first), y = both ? load(second) : zeros;
      values[2 * half] = vreinterpretq_bf16_u16(vzip1q_u16(x, y));
      values[2 * half + 1] = vreinterpretq_bf16_u16(vzip2q_u16(x, y));
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const bfloat16x8_t factors = spread_pair(args.a + r * args.a_stride + j);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v] = vbfdotq_f32(sums[r][v], factors, values[v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      store_up_to_4(sums[r][v], c + r * args.c_stride + 4 * v, count - 4 * v);
}

template <int kRows>
void add_some_rows(const AddRowsArgs& args) {
  if (args.rows != kRows) {
    if constexpr (kRows > 1) add_some_rows<kRows - 1>(args);
    return;
  }
  for (int64_t column = 0; column < args.columns; column += 16) add_tile<kRows>(args, column);
}

}  // namespace

void dot_bf16(const DotBf16Args& args) {
  for (int64_t column = 0; column < args.columns; column += tile_columns)
    for (int64_t row = 0; row < args.rows; row += most_rows) {
      DotBf16Args some = args;
      some.a = args.a + row * args.a_stride;
      some.c = args.c + row * args.c_stride;
      some.rows = std::min(most_rows, args.rows - row);
      with_row_pairs<most_pairs>(some.rows, [&](auto pairs) { dot_tile<pairs()>(some, column); });
    }
}

void dot_panels(const DotPanelsArgs& args) {
  gemm_bf16({.a = args.a,
             .a_stride = args.a_stride,
             .b = args.b,
             .c = args.c,
             .c_stride = args.c_stride,
             .rows = args.rows,
             .columns = args.columns,
             .depth = args.depth,
             .accumulate = args.accumulate,
             .panel_depth = args.b_stride,
             .splits = args.splits});
}

void add_rows_bf16(const AddRowsArgs& args) {
  AddRowsArgs part = args;
  for (int64_t row = 0; row < args.rows; row += most_added_rows) {
    part.rows = std::min<int64_t>(most_added_rows, args.rows - row);
    add_some_rows<most_added_rows>(part);
    part.a += most_added_rows * args.a_stride;
    part.c += most_added_rows * args.c_stride;
  }
}

}  // namespace pecia::kernels::cpu
