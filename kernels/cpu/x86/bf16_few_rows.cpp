// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/bf16_few_rows.hpp"

#include "kernels/cpu/products/bf16_kernels.hpp"
#include "kernels/cpu/x86/vectors.hpp"

namespace pecia::kernels::cpu {
namespace {

// Accumulator rows kept in registers, beside 16 vectors of columns.
constexpr int most_rows_in_registers = 8;
// Rows multiplied at a time where there are more.
constexpr int64_t most_rows = 64;
// A block of a panel, 8 KiB.
constexpr int64_t panel_depth = 128;
// Prefetch distance in panels that are packed already: 8 KiB. Measured on Zen 5, two
// threads, 1 to 8 rows: 65 to 79 GB/s of 85; 2 KiB gave 37 to 64, and nothing 43 to 87.
constexpr int64_t panel_ahead = panel_depth * bf16_panel;
constexpr auto element_bytes = static_cast<int64_t>(sizeof(uint16_t));
// Prefetch distance of columns, in elements.
constexpr int64_t block_ahead = 256;
constexpr int most_added_rows = 4;

/// From element `begin` of panels of `columns` columns: as far ahead as one block of a panel.
int64_t elements_ahead(const DotBf16Args& args, int64_t begin, int64_t columns) {
  if (args.ahead != 0) return args.ahead;
  const int64_t block = std::min(block_ahead, args.depth);
  return begin + block < args.depth ? block : columns * args.b_stride + block - args.depth;
}

PECIA_BF16_CODE inline __mmask16 lanes_of(int64_t count) {
  return static_cast<__mmask16>(count >= sum_lanes ? 0xffff
                                                   : (1u << std::max<int64_t>(0, count)) - 1);
}

/// sums[r] += the products of a pair of each row with a pair of each column.
template <int kRows>
PECIA_BF16_CODE inline void add_pair(const uint16_t* a, int64_t a_stride, __m512i columns,
                                     __m512 (&sums)[kRows]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
    sums[r] = _mm512_dpbf16_ps(sums[r], spread_pair(a + r * a_stride), (__m512bh)columns);
}

/// kRows rows with 16 · kPanels columns from `column` on, of which the last panel may have fewer.
/// Panels side by side are chains of additions that do not wait for each other.
template <int kRows, int kPanels>
PECIA_BF16_CODE inline void dot_tile(const DotBf16Args& args, int64_t column) {
  __m512 sums[kPanels][kRows];
  __m512i v[sum_lanes];
  float* const c = args.c + column;
  const uint16_t* const b = args.b + column * args.b_stride;
  const int64_t count = args.columns - column, width = kPanels * sum_lanes;
#pragma GCC unroll 3
  for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
      sums[p][r] = args.accumulate ? _mm512_maskz_loadu_ps(lanes_of(count - p * sum_lanes),
                                                           c + r * args.c_stride + p * sum_lanes)
                                   : _mm512_setzero_ps();
  int64_t i = 0;
  for (; i + bf16_lanes <= args.depth; i += bf16_lanes) {
    const int64_t ahead = elements_ahead(args, i, width);
#pragma GCC unroll 3
    for (int p = 0; p < kPanels; ++p) {
      const uint16_t* const columns = b + p * sum_lanes * args.b_stride + i;
      if (p + 1 == kPanels && count < width)
        load_few_transposed(columns, args.b_stride, count - p * sum_lanes, ahead, v);
      else
        load_transposed(columns, args.b_stride, ahead, v);
#pragma GCC unroll 16
      for (int64_t pair = 0; pair < sum_lanes; ++pair)
        add_pair<kRows>(args.a + i + 2 * pair, args.a_stride, v[pair], sums[p]);
    }
  }
  for (; i < args.depth; i += bf16_lanes) {
    const int64_t pairs = std::min(sum_lanes, (args.depth - i + 1) / 2);
#pragma GCC unroll 3
    for (int p = 0; p < kPanels; ++p) {
      load_some_transposed(b + p * sum_lanes * args.b_stride + i, args.b_stride,
                           count - p * sum_lanes, args.depth - i, v);
#pragma GCC unroll 1
      for (int64_t pair = 0; pair < pairs; ++pair)
        add_pair<kRows>(args.a + i + 2 * pair, args.a_stride, v[pair], sums[p]);
    }
  }
#pragma GCC unroll 3
  for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
      _mm512_mask_storeu_ps(c + r * args.c_stride + p * sum_lanes, lanes_of(count - p * sum_lanes),
                            sums[p][r]);
}

template <int kRows>
PECIA_BF16_CODE void dot_in_registers(const DotBf16Args& args) {
  if (args.rows != kRows) {
    if constexpr (kRows > 1) dot_in_registers<kRows - 1>(args);
    return;
  }
  constexpr int panels = kRows <= 2 ? 2 : 1;
  constexpr int64_t width = panels * sum_lanes;
  int64_t column = 0;
  for (; column + width + sum_lanes <= args.columns; column += width)
    dot_tile<kRows, panels>(args, column);
  const int64_t left = args.columns - column;
  if (left > width) return dot_tile<kRows, panels + 1>(args, column);
  if (left > sum_lanes) return dot_tile<kRows, panels>(args, column);
  if (left > 0) dot_tile<kRows, 1>(args, column);
}

/// A block of a panel, and what to ask for while it is multiplied.
struct Block {
  const uint16_t* packed;
  ComingRows coming;
};

/// More rows, most_rows at most, meet blocks of panels that stay in the first cache. `block_of` gives
/// the block of columns [column, column + columns) and elements [i, i + depth). While it is
/// multiplied, the next one is asked for. (Asked for all at once, it would come as late as without.)
/// The sums are kept side by side until the last block: rows of c may lie a multiple of 4 KiB apart,
/// and would share one set of the first cache.
template <class Args, class BlockOf>
PECIA_BF16_CODE void dot_by_blocks(const Args& args, const BlockOf& block_of) {
  alignas(64) float sums[most_rows * bf16_panel];
  for (int64_t column = 0; column < args.columns; column += bf16_panel) {
    const int64_t columns = std::min(bf16_panel, args.columns - column);
    float* const c = args.c + column;
    for (int64_t r = 0; args.accumulate && r < args.rows; ++r)
      std::copy_n(c + r * args.c_stride, columns, sums + r * bf16_panel);
    for (int64_t i = 0; i == 0 || i < args.depth; i += panel_depth) {
      const int64_t depth = std::min(panel_depth, args.depth - i);
      const Block block = block_of(column, columns, i, depth);
      gemm_bf16({.a = args.a + i,
                 .a_stride = args.a_stride,
                 .b = block.packed,
                 .c = sums,
                 .c_stride = bf16_panel,
                 .rows = args.rows,
                 .columns = columns,
                 .depth = depth,
                 .accumulate = args.accumulate || i > 0,
                 .coming = block.coming});
    }
    for (int64_t r = 0; r < args.rows; ++r)
      for (int64_t half = 0; half < columns; half += sum_lanes)
        _mm512_mask_storeu_ps(c + r * args.c_stride + half, lanes_of(columns - half),
                              _mm512_load_ps(sums + r * bf16_panel + half));
  }
}

/// Calls f with most_rows rows at a time.
template <class Args, class F>
void for_some_rows(const Args& args, const F& f) {
  Args some = args;
  for (int64_t row = 0; row < args.rows; row += most_rows) {
    some.a = args.a + row * args.a_stride;
    some.c = args.c + row * args.c_stride;
    some.rows = std::min(most_rows, args.rows - row);
    f(some);
  }
}

/// The other matrix is packed a moment before.
PECIA_BF16_CODE void dot_by_packing(const DotBf16Args& args) {
  alignas(64) uint16_t packed[panel_depth * bf16_panel];
  dot_by_blocks(args, [&](int64_t column, int64_t columns, int64_t i, int64_t depth) {
    const uint16_t* const b = args.b + column * args.b_stride + i;
    pack_bf16({b, args.b_stride, columns, depth, packed});
    return Block{packed,
                 {b + elements_ahead(args, i, bf16_panel), args.b_stride * element_bytes,
                  depth * element_bytes, columns}};
  });
}

/// Columns [column, column + 32 · kVectors), as far as they are there.
template <int kRows, int kVectors>
PECIA_BF16_CODE inline void add_tile(const AddRowsArgs& args, int64_t column) {
  const PairsOfRows pairs;
  const int64_t count = args.columns - column;
  const int64_t ahead = args.ahead * static_cast<int64_t>(sizeof(uint16_t));
  __m512 sums[kRows][2 * kVectors];
  float* const c = args.c + column;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < 2 * kVectors; ++v)
      sums[r][v] = _mm512_maskz_loadu_ps(lanes_of(count - v * sum_lanes),
                                         c + r * args.c_stride + v * sum_lanes);
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
    for (int v = 0; v < 2 * kVectors; ++v)
      _mm512_mask_storeu_ps(c + r * args.c_stride + v * sum_lanes, lanes_of(count - v * sum_lanes),
                            sums[r][v]);
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
  if (args.rows <= most_rows_in_registers) return dot_in_registers<most_rows_in_registers>(args);
  for_some_rows(args, dot_by_packing);
}

void dot_panels(const DotPanelsArgs& args) {
  const auto panel_bytes = args.depth * bf16_panel * element_bytes;
  if (args.rows > bf16_vectors().tile_rows && args.splits == 1)
    return for_some_rows(args, [](const DotPanelsArgs& some) {
      dot_by_blocks(some, [&](int64_t column, int64_t, int64_t i, int64_t depth) {
        const uint16_t* const b = some.b + column * some.b_stride + i * bf16_panel;
        return Block{b, {b + depth * bf16_panel, 0, depth * bf16_panel * element_bytes, 1}};
      });
    });
  for (int64_t column = 0; column < args.columns; column += bf16_panel) {
    const uint16_t* const b = args.b + column * args.b_stride;
    gemm_bf16({.a = args.a,
               .a_stride = args.a_stride,
               .b = b,
               .c = args.c + column,
               .c_stride = args.c_stride,
               .rows = args.rows,
               .columns = std::min(bf16_panel, args.columns - column),
               .depth = args.depth,
               .accumulate = args.accumulate,
               .coming = {b + panel_ahead, 0, panel_bytes, 1},
               .splits = args.splits});
  }
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
