// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/bf16_products.hpp"

#include <algorithm>
#include <bit>

#include "kernels/cpu/attention/strip.hpp"
#include "kernels/cpu/products/bf16_kernels.hpp"
#include "kernels/cpu/products/lines_to_ask.hpp"
#include "kernels/cpu/x86/vectors.hpp"

namespace pecia::kernels::cpu {
namespace {

constexpr int max_tile_rows = 14;  // 28 sums, of 32 registers

constexpr int64_t in_units(int64_t depth, int64_t unit) {
  return (depth + unit - 1) / unit * unit;
}

/// 16 columns of a panel, of which `count` are there. There are zeros from the depth up to a
/// multiple of kUnit.
template <int64_t kUnit>
PECIA_BF16_CODE void pack_columns(const uint16_t* rows, const PackBf16Args& args, int64_t count,
                                  uint16_t* packed) {
  __m512i v[sum_lanes];
  int64_t i = 0;
  for (; count >= sum_lanes && i + bf16_lanes <= args.depth; i += bf16_lanes) {
    load_transposed(rows + i, args.row_stride, args.ahead, v);
#pragma GCC unroll 16
    for (int64_t pair = 0; pair < sum_lanes; ++pair)
      _mm512_storeu_si512(packed + (i / 2 + pair) * 2 * bf16_panel, v[pair]);
  }
  for (; i < args.depth; i += bf16_lanes) {
    load_some_transposed(rows + i, args.row_stride, count, args.depth - i, v);
    const int64_t pairs = std::min(sum_lanes, in_units(args.depth - i, kUnit) / 2);
    for (int64_t pair = 0; pair < pairs; ++pair)
      _mm512_storeu_si512(packed + (i / 2 + pair) * 2 * bf16_panel, v[pair]);
  }
}

struct NothingToAsk {
  void step() {}
};

/// Sums of kRows rows and a panel of columns, in registers, as all is inlined.
template <int kRows>
struct TileSums {
  __m512 at[kRows][2];

  [[gnu::always_inline]] PECIA_BF16_CODE void set_zero() {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) at[r][0] = at[r][1] = _mm512_setzero_ps();
  }
  [[gnu::always_inline]] PECIA_BF16_CODE void load(const float* c, int64_t stride) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      at[r][0] = _mm512_loadu_ps(c + r * stride);
      at[r][1] = _mm512_loadu_ps(c + r * stride + sum_lanes);
    }
  }
  /// at = c + at
  [[gnu::always_inline]] PECIA_BF16_CODE void add_to(const float* c, int64_t stride) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      at[r][0] = _mm512_add_ps(_mm512_loadu_ps(c + r * stride), at[r][0]);
      at[r][1] = _mm512_add_ps(_mm512_loadu_ps(c + r * stride + sum_lanes), at[r][1]);
    }
  }
  template <class Lines>
  [[gnu::always_inline]] PECIA_BF16_CODE void add_products(const uint16_t* __restrict a,
                                                           int64_t a_stride,
                                                           const uint16_t* __restrict b,
                                                           int64_t num_pairs, Lines& lines) {
    for (int64_t pair = 0; pair < num_pairs; ++pair) {
      lines.step();
      const __m512bh b0 = load_pairs(b + pair * 2 * bf16_panel);
      const __m512bh b1 = load_pairs(b + pair * 2 * bf16_panel + 2 * sum_lanes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m512bh factors = spread_pair(a + r * a_stride + 2 * pair);
        at[r][0] = _mm512_dpbf16_ps(at[r][0], factors, b0);
        at[r][1] = _mm512_dpbf16_ps(at[r][1], factors, b1);
      }
    }
  }
  [[gnu::always_inline]] PECIA_BF16_CODE void store(float* c, int64_t stride) const {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      _mm512_storeu_ps(c + r * stride, at[r][0]);
      _mm512_storeu_ps(c + r * stride + sum_lanes, at[r][1]);
    }
  }
};

/// c (+)= a · b for kRows rows and one panel.
template <int kRows, class Lines>
[[gnu::always_inline]] PECIA_BF16_CODE inline void multiply_tile(const GemmBf16Args& args,
                                                                 const uint16_t* a,
                                                                 const uint16_t* b, float* c,
                                                                 int64_t c_stride, Lines& lines) {
  TileSums<kRows> sums;
  if (args.accumulate)
    sums.load(c, c_stride);
  else
    sums.set_zero();
  sums.add_products(a, args.a_stride, b, (args.depth + 1) / 2, lines);
  sums.store(c, c_stride);
}

/// The same in splits. A sum waits, in the first cache, until its sibling in the tree is there.
template <int kRows, class Lines>
[[gnu::always_inline]] PECIA_BF16_CODE inline void multiply_tile_in_splits(
    const GemmBf16Args& args, const uint16_t* a, const uint16_t* b, float* c, int64_t c_stride,
    Lines& lines) {
  constexpr int levels = std::countr_zero(unsigned{most_splits});
  alignas(64) float waiting[levels][kRows * bf16_panel];
  const int64_t width = args.depth / args.splits;
  int count = 0;
  for (int split = 0;; ++split) {
    TileSums<kRows> sums;
    sums.set_zero();
    sums.add_products(a + split * width, args.a_stride, b + split * width * bf16_panel, width / 2,
                      lines);
    for (int done = split; done % 2 == 1; done /= 2) sums.add_to(waiting[--count], bf16_panel);
    if (split + 1 < args.splits) {
      sums.store(waiting[count++], bf16_panel);
      continue;
    }
    if (args.accumulate) sums.add_to(c, c_stride);
    return sums.store(c, c_stride);
  }
}

/// The panels of one tile of rows; the last panel may be narrower and goes through a buffer.
template <int kRows, bool kInSplits, class Lines>
PECIA_BF16_CODE void multiply_rows(const GemmBf16Args& args, const uint16_t* a, float* c,
                                   Lines& lines) {
  for (int64_t column = 0; column < args.columns; column += bf16_panel) {
    const uint16_t* const b = args.b + column * args.column_stride(2);
    const int64_t width = std::min(bf16_panel, args.columns - column);
    alignas(64) float tile[kRows * bf16_panel];
    const bool whole = width == bf16_panel;
    float* const to = whole ? c + column : tile;
    const int64_t stride = whole ? args.c_stride : bf16_panel;
    if (!whole) std::fill_n(tile, kRows * bf16_panel, 0.0f);
    for (int r = 0; !whole && args.accumulate && r < kRows; ++r)
      std::copy_n(c + r * args.c_stride + column, width, tile + r * bf16_panel);
    if constexpr (kInSplits)
      multiply_tile_in_splits<kRows>(args, a, b, to, stride, lines);
    else
      multiply_tile<kRows>(args, a, b, to, stride, lines);
    for (int r = 0; !whole && r < kRows; ++r)
      std::copy_n(tile + r * bf16_panel, width, c + r * args.c_stride + column);
  }
}

template <int kRows, bool kInSplits, class Lines>
void multiply_some_rows(int64_t rows, const GemmBf16Args& args, const uint16_t* a, float* c,
                        Lines& lines) {
  if (rows == kRows) return multiply_rows<kRows, kInSplits>(args, a, c, lines);
  if constexpr (kRows > 1) multiply_some_rows<kRows - 1, kInSplits>(rows, args, a, c, lines);
}

template <bool kInSplits, class Lines>
void multiply_all_rows(const GemmBf16Args& args, int64_t num_tiles, Lines& lines) {
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    const int64_t begin = args.rows * tile / num_tiles, end = args.rows * (tile + 1) / num_tiles;
    multiply_some_rows<max_tile_rows, kInSplits>(end - begin, args, args.a + begin * args.a_stride,
                                                 args.c + begin * args.c_stride, lines);
  }
}

template <int64_t kUnit>
void pack_panels(const PackBf16Args& args) {
  const int64_t packed_depth = in_units(args.depth, kUnit);
  for (int64_t column = 0; column < args.columns; column += bf16_panel)
    for (const int64_t half : {int64_t{0}, sum_lanes})
      pack_columns<kUnit>(args.rows + (column + half) * args.row_stride, args,
                          args.columns - column - half,
                          args.packed + column * packed_depth + 2 * half);
}

}  // namespace

void pack_bf16(const PackBf16Args& args) {
  pack_panels<2>(args);
}

void pack_bf16_tiles(const PackBf16Args& args) {
  pack_panels<2 * sum_lanes>(args);
}

void gemm_bf16(const GemmBf16Args& args) {
  const int64_t num_tiles = (args.rows + max_tile_rows - 1) / max_tile_rows;
  const auto multiply = [&](auto lines) {
    if (args.splits == 1)
      multiply_all_rows<false>(args, num_tiles, lines);
    else
      multiply_all_rows<true>(args, num_tiles, lines);
  };
  if (args.coming.rows == 0) return multiply(NothingToAsk{});
  const int64_t panels = (args.columns + bf16_panel - 1) / bf16_panel;
  multiply(LinesToAsk(args.coming, num_tiles * panels * ((args.depth + 1) / 2)));
}

const Bf16Kernel& bf16_vectors() {
  static const Bf16Kernel kernel{.instructions = "AVX-512 VDPBF16PS",
                                 .tile_rows = max_tile_rows,
                                 .depth_unit = 2,
                                 .pack = pack_bf16,
                                 .multiply = gemm_bf16,
                                 .bits_of_few_rows = true,
                                 .sums_splits = true,
                                 .strips = &vector_strips()};
  return kernel;
}

}  // namespace pecia::kernels::cpu
