// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Vectors of bf16 of Arm: loads, pairs, and products of blocks by BFMMLA. The functions that use the
/// instructions are compiled for FEAT_BF16 by PECIA_BF16_CODE.
///
/// BFMMLA adds to four sums [2 rows, 2 columns] the products of four elements each, as two steps of
/// BFDOT: sum += a0·b0 + a1·b1, then sum += a2·b2 + a3·b3 ("Arm Architecture Reference Manual",
/// BFMatMulAdd; FPCR.EBF is 0). Its operands are two rows of four elements. So every sum is one chain
/// over pairs in order of depth, by either instruction and with any rows and columns beside it.
/// Products and sums are rounded to odd, and denormals count as zero.

#include <arm_neon.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/products/bf16_native.hpp"
#include "kernels/cpu/products/bf16_products.hpp"
#include "kernels/cpu/shared/prefetch.hpp"

#define PECIA_BF16_CODE __attribute__((target("arch=armv8.2-a+bf16")))

namespace pecia::kernels::cpu {

PECIA_BF16_CODE inline bfloat16x8_t load8(const uint16_t* from) {
  return vreinterpretq_bf16_u16(vld1q_u16(from));
}

/// The elements below `count`, and zeros. `count` may be below 0 or above 8.
PECIA_BF16_CODE inline bfloat16x8_t load_up_to_8(const uint16_t* from, int64_t count) {
  if (count >= 8) return load8(from);
  uint16_t elements[8] = {};
  if (count > 0) std::memcpy(elements, from, count * sizeof(uint16_t));
  return load8(elements);
}

/// Two rows of eight elements as operands of BFMMLA: the first four elements, and the others.
struct RowPair {
  bfloat16x8_t first, second;

  PECIA_BF16_CODE RowPair(bfloat16x8_t row, bfloat16x8_t next) {
    const auto a = vreinterpretq_u64_bf16(row), b = vreinterpretq_u64_bf16(next);
    first = vreinterpretq_bf16_u64(vzip1q_u64(a, b));
    second = vreinterpretq_bf16_u64(vzip2q_u64(a, b));
  }
};

/// Four columns of a panel in pairs, at two depths, as operands of BFMMLA: columns 0 and 1, and
/// columns 2 and 3, four elements each.
struct ColumnPairs {
  bfloat16x8_t low, high;

  PECIA_BF16_CODE ColumnPairs(bfloat16x8_t pairs, bfloat16x8_t next) {
    const auto a = vreinterpretq_u32_bf16(pairs), b = vreinterpretq_u32_bf16(next);
    low = vreinterpretq_bf16_u32(vzip1q_u32(a, b));
    high = vreinterpretq_bf16_u32(vzip2q_u32(a, b));
  }
};

/// Sums of 2 · kPairs rows and 4 · kQuads columns, in registers, as all is inlined.
template <int kPairs, int kQuads>
struct BlockSums {
  static constexpr int columns = 4 * kQuads;
  float32x4_t at[kPairs][2 * kQuads];  ///< row 2p of columns 2c and 2c + 1, and then row 2p + 1

  [[gnu::always_inline]] PECIA_BF16_CODE void set_zero() {
#pragma GCC unroll 8
    for (int p = 0; p < kPairs; ++p)
#pragma GCC unroll 16
      for (int c = 0; c < 2 * kQuads; ++c) at[p][c] = vdupq_n_f32(0);
  }
  /// Rows of numbers, `stride` apart. An odd last row is read twice.
  [[gnu::always_inline]] PECIA_BF16_CODE void load(const float* c, int64_t stride, int64_t rows) {
#pragma GCC unroll 8
    for (int p = 0; p < kPairs; ++p) {
      const float* const row = c + 2 * p * stride;
      const float* const next = 2 * p + 1 < rows ? row + stride : row;
#pragma GCC unroll 8
      for (int q = 0; q < kQuads; ++q) {
        const auto a = vreinterpretq_f64_f32(vld1q_f32(row + 4 * q));
        const auto b = vreinterpretq_f64_f32(vld1q_f32(next + 4 * q));
        at[p][2 * q] = vreinterpretq_f32_f64(vzip1q_f64(a, b));
        at[p][2 * q + 1] = vreinterpretq_f32_f64(vzip2q_f64(a, b));
      }
    }
  }
  [[gnu::always_inline]] PECIA_BF16_CODE void store(float* c, int64_t stride, int64_t rows) const {
#pragma GCC unroll 8
    for (int p = 0; p < kPairs; ++p)
#pragma GCC unroll 8
      for (int q = 0; q < kQuads; ++q) {
        const auto a = vreinterpretq_f64_f32(at[p][2 * q]);
        const auto b = vreinterpretq_f64_f32(at[p][2 * q + 1]);
        float* const to = c + 2 * p * stride + 4 * q;
        vst1q_f32(to, vreinterpretq_f32_f64(vzip1q_f64(a, b)));
        if (2 * p + 1 < rows) vst1q_f32(to + stride, vreinterpretq_f32_f64(vzip2q_f64(a, b)));
      }
  }
  /// The first `count` columns; all from the width on.
  [[gnu::always_inline]] PECIA_BF16_CODE void load_some(const float* c, int64_t stride,
                                                        int64_t rows, int64_t count) {
    if (count >= columns) return load(c, stride, rows);
    float copy[2 * kPairs * columns] = {};
    for (int64_t r = 0; r < rows; ++r) std::copy_n(c + r * stride, count, copy + r * columns);
    load(copy, columns, rows);
  }
  [[gnu::always_inline]] PECIA_BF16_CODE void store_some(float* c, int64_t stride, int64_t rows,
                                                         int64_t count) const {
    if (count >= columns) return store(c, stride, rows);
    float copy[2 * kPairs * columns];
    store(copy, columns, rows);
    for (int64_t r = 0; r < rows; ++r) std::copy_n(copy + r * columns, count, c + r * stride);
  }
  /// Adds the products of a pair of rows with two columns, four elements each.
  [[gnu::always_inline]] PECIA_BF16_CODE void add(int p, int c, bfloat16x8_t rows,
                                                  bfloat16x8_t two_columns) {
    at[p][c] = vbfmmlaq_f32(at[p][c], rows, two_columns);
  }
};

/// How many quads of columns fit the registers beside this number of pairs of rows.
constexpr int quads_beside(int pairs) {
  return pairs == 1 ? 8 : pairs <= 3 ? 4 : 2;
}

/// Calls f with std::integral_constant of the pairs that `rows` rows make, kMost at most.
template <int kMost, class F>
inline void with_row_pairs(int64_t rows, const F& f) {
  if (rows > 2 * (kMost - 1)) return f(std::integral_constant<int, kMost>());
  if constexpr (kMost > 1) with_row_pairs<kMost - 1>(rows, f);
}

}  // namespace pecia::kernels::cpu
