// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/bf16_few_rows.hpp"

#include "kernels/cpu/products/bf16_dot.hpp"

namespace pecia::kernels::cpu {
namespace {

constexpr int64_t sum_lanes = 16;
constexpr int most_added_rows = 4;

/// Of rows that lie `ahead` bytes before those to be read later, of which it asks for a line with
/// each that it reads.
struct Bf16Column {
  static constexpr int together = 1;
  const uint16_t* numbers;
  float scale;
  int64_t ahead;

  PECIA_BF16_CODE __m512bh next(int64_t i) const {
    ask_for(numbers + i, ahead);
    return load_pairs(numbers + i);
  }
  PECIA_BF16_CODE __m512bh last(int64_t i, int64_t count) const {
    return load_some(numbers + i, count);
  }
  float factor() const { return scale; }
};

/// Columns [column, column + 32 · kVectors), as far as they are there.
template <int kRows, int kVectors>
PECIA_BF16_CODE inline void add_tile(const AddRowsArgs& args, int64_t column) {
  const PairsOfRows pairs;
  const int64_t count = args.columns - column;
  const int64_t ahead = args.rows_ahead * args.b_stride * static_cast<int64_t>(sizeof(uint16_t));
  __m512 sums[kRows][2 * kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < 2 * kVectors; ++v) sums[r][v] = _mm512_setzero_ps();
  for (int64_t j = 0; j < args.depth; j += 2) {
    const uint16_t* const first = args.b + j * args.b_stride + column;
    const bool both = j + 1 < args.depth;
    __m512bh values[2 * kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      ask_for(first + v * bf16_lanes, ahead);
      ask_for(first + args.b_stride + v * bf16_lanes, ahead);
      const auto a = (__m512i)load_some(first + v * bf16_lanes, count - v * bf16_lanes);
      const auto b =
          both ? (__m512i)load_some(first + args.b_stride + v * bf16_lanes, count - v * bf16_lanes)
               : _mm512_setzero_si512();
      values[2 * v] = (__m512bh)pairs.low(a, b);
      values[2 * v + 1] = (__m512bh)pairs.high(a, b);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m512bh factors = spread_pair(args.a + r * args.a_stride + j);
#pragma GCC unroll 4
      for (int v = 0; v < 2 * kVectors; ++v)
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], factors, values[v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < 2 * kVectors; ++v) {
      const int64_t left = count - v * sum_lanes;
      const auto mask = static_cast<__mmask16>(
          left >= sum_lanes ? 0xffff : (1u << std::max<int64_t>(0, left)) - 1);
      float* const to = args.c + r * args.c_stride + column + v * sum_lanes;
      _mm512_mask_storeu_ps(to, mask, _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), sums[r][v]));
    }
}

template <int kRows>
PECIA_BF16_CODE void add_some_rows(const AddRowsArgs& args) {
  if (args.rows != kRows) {
    if constexpr (kRows > 1) add_some_rows<kRows - 1>(args);
    return;
  }
  for (int64_t column = 0; column < args.columns; column += 2 * bf16_lanes)
    if (args.columns - column > bf16_lanes)
      add_tile<kRows, 2>(args, column);
    else
      add_tile<kRows, 1>(args, column);
}

}  // namespace

void dot_bf16(const DotBf16Args& args) {
  const int64_t row_bytes = args.b_stride * static_cast<int64_t>(sizeof(uint16_t));
  const int64_t ahead = args.rows_ahead > 0 ? args.rows_ahead * row_bytes : bytes_ahead(row_bytes);
  dot_few_rows({args.a, args.a_stride, args.c, args.c_stride, args.rows, args.columns, args.depth,
                args.accumulate},
               [&](int64_t o) {
                 return Bf16Column{args.b + o * args.b_stride, args.factor, ahead};
               });
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
