// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/bf16_products.hpp"

#include <bit>
#include <type_traits>

#include "kernels/cpu/arm/vectors.hpp"
#include "kernels/cpu/attention/strip.hpp"
#include "kernels/cpu/products/bf16_kernels.hpp"
#include "kernels/cpu/products/lines_to_ask.hpp"

namespace pecia::kernels::cpu {
namespace {

// 24 sums, four operands of columns and one of rows, of 32 registers.
constexpr int most_pairs = 6;
constexpr int64_t tile_rows = 2 * most_pairs, least_columns = 4 * quads_beside(most_pairs);
// Rows of a tile are put in the order of BFMMLA for so much of the depth at a time, 12 KiB.
constexpr int64_t piece_depth = 512;
constexpr int64_t panel_pair = 2 * bf16_panel;  // elements of a pair of depth in a panel

constexpr int64_t in_units(int64_t depth, int64_t unit) {
  return (depth + unit - 1) / unit * unit;
}

/// Eight columns of a panel, of which `count` are there, from `depth` elements in pairs.
PECIA_BF16_CODE void pack_eight(const uint16_t* rows, const PackBf16Args& args, int64_t count,
                                int64_t packed_depth, uint16_t* packed) {
  for (int64_t i = 0; i < packed_depth; i += 8) {
    uint32x4_t column[8];
#pragma GCC unroll 8
    for (int64_t c = 0; c < 8; ++c) {
      const uint16_t* const from = rows + c * args.row_stride + i;
      column[c] =
          c < count ? vreinterpretq_u32_bf16(load_up_to_8(from, args.depth - i)) : vdupq_n_u32(0);
      if (args.ahead != 0 && i % bf16_lanes == 0)
        ask_for(from, args.ahead * static_cast<int64_t>(sizeof(uint16_t)));
    }
    const int64_t pairs = std::min<int64_t>(4, (packed_depth - i) / 2);
#pragma GCC unroll 2
    for (int64_t half = 0; half < 2; ++half) {  // 4 × 4 pairs are transposed
      const uint32x4_t* const v = column + 4 * half;
      const auto a = vreinterpretq_u64_u32(vtrn1q_u32(v[0], v[1]));
      const auto b = vreinterpretq_u64_u32(vtrn1q_u32(v[2], v[3]));
      const auto c = vreinterpretq_u64_u32(vtrn2q_u32(v[0], v[1]));
      const auto d = vreinterpretq_u64_u32(vtrn2q_u32(v[2], v[3]));
      const uint64x2_t pair[4] = {vzip1q_u64(a, b), vzip1q_u64(c, d), vzip2q_u64(a, b),
                                  vzip2q_u64(c, d)};
      for (int64_t p = 0; p < pairs; ++p)
        vst1q_u16(packed + (i / 2 + p) * panel_pair + 8 * half, vreinterpretq_u16_u64(pair[p]));
    }
  }
}

template <int64_t kUnit>
void pack_panels(const PackBf16Args& args) {
  const int64_t packed_depth = in_units(args.depth, kUnit);
  for (int64_t column = 0; column < in_units(args.columns, bf16_panel); column += 8)
    pack_eight(
        args.rows + column * args.row_stride, args, args.columns - column, packed_depth,
        args.packed + column / bf16_panel * bf16_panel * packed_depth + column % bf16_panel * 2);
}

/// `rows` rows of `depth` elements, as BFMMLA takes them: [depth / 4, pairs of rows, 2, 4]. There are
/// zeros where there are no rows and no elements.
PECIA_BF16_CODE void order_rows(const uint16_t* a, int64_t a_stride, int64_t rows, int64_t depth,
                                int pairs, uint16_t* to) {
  for (int p = 0; p < pairs; ++p) {
    const uint16_t* const row = a + 2 * p * a_stride;
    const bool both = 2 * p + 1 < rows;
    for (int64_t i = 0; i < depth; i += 8) {
      const int64_t left = depth - i;
      const RowPair pair(load_up_to_8(row + i, left), both
                                                          ? load_up_to_8(row + a_stride + i, left)
                                                          : vreinterpretq_bf16_u16(vdupq_n_u16(0)));
      uint16_t* const at = to + (i / 4 * pairs + p) * 8;
      vst1q_u16(at, vreinterpretq_u16_bf16(pair.first));
      if (left > 4) vst1q_u16(at + pairs * 8, vreinterpretq_u16_bf16(pair.second));
    }
  }
}

/// sums += the products of ordered rows and columns of a panel at depths i and i + 2. Null `next`: the
/// panel ends with the first pair.
template <int kPairs, int kQuads>
[[gnu::always_inline]] PECIA_BF16_CODE inline void add_step(const uint16_t* ordered,
                                                            const uint16_t* b, const uint16_t* next,
                                                            BlockSums<kPairs, kQuads>& sums) {
  const bfloat16x8_t none = vreinterpretq_bf16_u16(vdupq_n_u16(0));
  if constexpr (kPairs > kQuads) {  // what is fewer stays in registers
    bfloat16x8_t columns[2 * kQuads];
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q) {
      const ColumnPairs quad(load8(b + 8 * q), next != nullptr ? load8(next + 8 * q) : none);
      columns[2 * q] = quad.low, columns[2 * q + 1] = quad.high;
    }
#pragma GCC unroll 8
    for (int p = 0; p < kPairs; ++p) {
      const bfloat16x8_t row = load8(ordered + p * 8);
#pragma GCC unroll 8
      for (int c = 0; c < 2 * kQuads; ++c) sums.add(p, c, row, columns[c]);
    }
  } else {
    bfloat16x8_t rows[kPairs];
#pragma GCC unroll 8
    for (int p = 0; p < kPairs; ++p) rows[p] = load8(ordered + p * 8);
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q) {
      const ColumnPairs quad(load8(b + 8 * q), next != nullptr ? load8(next + 8 * q) : none);
#pragma GCC unroll 8
      for (int p = 0; p < kPairs; ++p) {
        sums.add(p, 2 * q, rows[p], quad.low);
        sums.add(p, 2 * q + 1, rows[p], quad.high);
      }
    }
  }
}

/// One tile of rows, 2 · kPairs at most.
template <int kPairs>
PECIA_BF16_CODE void multiply_tile(const GemmBf16Args& args, const uint16_t* a, float* c,
                                   int64_t rows, LinesToAsk& lines) {
  using Sums = BlockSums<kPairs, quads_beside(kPairs)>;
  alignas(64) uint16_t ordered[piece_depth * 2 * kPairs];
  for (int64_t begin = 0; begin == 0 || begin < args.depth; begin += piece_depth) {
    const int64_t depth = std::min(piece_depth, args.depth - begin);
    order_rows(a + begin, args.a_stride, rows, depth, kPairs, ordered);
    for (int64_t column = 0; column < args.columns; column += Sums::columns) {
      lines.step();
      const uint16_t* b = args.b + column / bf16_panel * bf16_panel * args.column_stride(2) +
                          begin * bf16_panel + column % bf16_panel * 2;
      Sums sums;
      if (args.accumulate || begin > 0)
        sums.load_some(c + column, args.c_stride, rows, args.columns - column);
      else
        sums.set_zero();
      const uint16_t* from = ordered;
      int64_t i = 0;
      for (; i + 2 < depth; i += 4, b += 2 * panel_pair, from += kPairs * 8)
        add_step(from, b, b + panel_pair, sums);
      if (i < depth) add_step(from, b, nullptr, sums);
      sums.store_some(c + column, args.c_stride, rows, args.columns - column);
    }
  }
}

/// A product without splits.
void multiply(const GemmBf16Args& args, LinesToAsk& lines) {
  const int64_t num_tiles = (args.rows + tile_rows - 1) / tile_rows;
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    const int64_t begin = args.rows * tile / num_tiles, end = args.rows * (tile + 1) / num_tiles;
    with_row_pairs<most_pairs>(end - begin, [&](auto pairs) {
      multiply_tile<pairs()>(args, args.a + begin * args.a_stride, args.c + begin * args.c_stride,
                             end - begin, lines);
    });
  }
}

/// The sums of equal parts of the depth, added in pairs, for some rows and one panel at a time. A sum
/// waits until its sibling in the tree is there.
void multiply_in_splits(const GemmBf16Args& args, LinesToAsk& lines) {
  constexpr int levels = std::countr_zero(unsigned{most_splits});
  alignas(64) float waiting[levels + 1][tile_rows * bf16_panel] = {};
  const int64_t width = args.depth / args.splits;
  for (int64_t row = 0; row < args.rows; row += tile_rows)
    for (int64_t column = 0; column < args.columns; column += bf16_panel) {
      GemmBf16Args part = args;
      part.rows = std::min(tile_rows, args.rows - row);
      part.columns = std::min(bf16_panel, args.columns - column);
      part.depth = width, part.c_stride = bf16_panel, part.accumulate = false;
      part.panel_depth = args.column_stride(2);
      int count = 0;
      for (int split = 0; split < args.splits; ++split) {
        part.a = args.a + row * args.a_stride + split * width;
        part.b = args.b + column * part.panel_depth + split * width * bf16_panel;
        part.c = waiting[count++];
        multiply(part, lines);
        for (int done = split; done % 2 == 1; done /= 2) {
          --count;
          for (int64_t i = 0; i < part.rows * bf16_panel; ++i)
            waiting[count - 1][i] += waiting[count][i];
        }
      }
      for (int64_t r = 0; r < part.rows; ++r)
        for (int64_t o = 0; o < part.columns; ++o) {
          float& to = args.c[(row + r) * args.c_stride + column + o];
          const float sum = waiting[0][r * bf16_panel + o];
          to = args.accumulate ? to + sum : sum;
        }
    }
}

}  // namespace

void pack_bf16(const PackBf16Args& args) {
  pack_panels<2>(args);
}

void pack_bf16_tiles(const PackBf16Args& args) {
  pack_panels<bf16_depth>(args);
}

void gemm_bf16(const GemmBf16Args& args) {
  const int64_t blocks = (args.columns + least_columns - 1) / least_columns;
  const int64_t pieces = std::max<int64_t>(1, (args.depth + piece_depth - 1) / piece_depth);
  LinesToAsk lines(args.coming, (args.rows + tile_rows - 1) / tile_rows * blocks * pieces);
  if (args.splits == 1)
    multiply(args, lines);
  else
    multiply_in_splits(args, lines);
}

const Bf16Kernel& bf16_vectors() {
  static const Bf16Kernel kernel{.instructions = "BFMMLA",
                                 .tile_rows = tile_rows,
                                 .depth_unit = 2,
                                 .pack = pack_bf16,
                                 .multiply = gemm_bf16,
                                 .bits_of_few_rows = true,
                                 .sums_splits = true,
                                 .strips = &vector_strips()};
  return kernel;
}

}  // namespace pecia::kernels::cpu
