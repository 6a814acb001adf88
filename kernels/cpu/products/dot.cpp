// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/dot.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/products/dot.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/shared/widen-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::ScalableTag<float>;
using Vector = hn::Vec<Wide>;
constexpr int64_t lanes = hn::MaxLanes(Wide());
// Accumulators of a tile: 16 of 32 registers with AVX-512, 8 of 16 with AVX2.
constexpr int max_rows = lanes >= 16 ? 4 : 2;
constexpr int tile_columns = 4;

/// The sums of the lanes of four vectors. One reduction for four, as scores of short heads need
/// many.
HWY_INLINE void store_sums(const Vector (&v)[tile_columns], float* to) {
  const Wide d;
  const hn::Repartition<double, Wide> pairs;  // two neighbouring floats, moved together
  const Vector v01 =
      hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1]));
  const Vector v23 =
      hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3]));
  const auto p01 = hn::BitCast(pairs, v01), p23 = hn::BitCast(pairs, v23);
  // Now in each block of 128 bits: parts of the four sums, to be added over the blocks.
  const Vector blocks = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, p01, p23)),
                                hn::BitCast(d, hn::InterleaveUpper(pairs, p01, p23)));
  HWY_ALIGN float parts[lanes];
  hn::Store(blocks, d, parts);
  const hn::FixedTag<float, tile_columns> block;
  auto sums = hn::Load(block, parts);
  for (int64_t i = tile_columns; i < lanes; i += tile_columns)
    sums = hn::Add(sums, hn::Load(block, parts + i));
  hn::StoreU(sums, block, to);
}

/// `count` ≤ 4 columns, kTogether at a time; missing ones are computed as copies of the last, so
/// that a sum's order of additions never depends on its neighbours.
template <int kRows, int kTogether, class Stored>
HWY_INLINE void dot_tile(const DotArgs& args, const float* a, const Stored* b, int64_t count,
                         float* c) {
  const Wide d;
  const int64_t whole = args.depth / lanes * lanes;
  const Stored* columns[tile_columns];
  Vector sums[kRows][tile_columns];
  for (int64_t o = 0; o < tile_columns; ++o)
    columns[o] = b + std::min(o, count - 1) * args.b_stride;
#pragma GCC unroll 4
  for (int first = 0; first < tile_columns; first += kTogether) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int o = first; o < first + kTogether; ++o) sums[r][o] = hn::Zero(d);
    for (int64_t i = 0; i < whole; i += lanes) {
      Vector x[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) x[r] = hn::LoadU(d, a + r * args.a_stride + i);
#pragma GCC unroll 4
      for (int o = first; o < first + kTogether; ++o) {
        const Vector w = load_wide(d, columns[o] + i);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) sums[r][o] = hn::MulAdd(x[r], w, sums[r][o]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    float total[tile_columns];
    store_sums(sums[r], total);
    float* const to = c + r * args.c_stride;
    for (int64_t o = 0; o < count; ++o) {
      for (int64_t j = whole; j < args.depth; ++j)
        total[o] += a[r * args.a_stride + j] * widen_one(columns[o][j]);
      to[o] = args.accumulate ? to[o] + total[o] : total[o];
    }
  }
}

template <int kRows, int kTogether, class Stored>
HWY_INLINE void dot_some_rows(int64_t rows, const DotArgs& args, const float* a, const Stored* b,
                              int64_t count, float* c) {
  if (rows == kRows) return dot_tile<kRows, kTogether>(args, a, b, count, c);
  if constexpr (kRows > 1) dot_some_rows<kRows - 1, kTogether>(rows, args, a, b, count, c);
}

/// All rows with four columns after four. The first rows bring these into the first cache, one
/// column after the other, as memory is read fastest (bf16_dot.hpp); the others find them there.
template <class Stored>
void dot_stored(const DotArgs& args) {
  for (int64_t o = 0; o < args.columns; o += tile_columns) {
    const Stored* b = static_cast<const Stored*>(args.b) + o * args.b_stride;
    const int64_t count = std::min<int64_t>(tile_columns, args.columns - o);
    for (int64_t row = 0; row < args.rows; row += max_rows) {
      const int64_t rows = std::min<int64_t>(max_rows, args.rows - row);
      const float* const a = args.a + row * args.a_stride;
      float* const c = args.c + row * args.c_stride + o;
      if (row == 0)
        dot_some_rows<max_rows, 1>(rows, args, a, b, count, c);
      else
        dot_some_rows<max_rows, tile_columns>(rows, args, a, b, count, c);
    }
  }
}

void DotRows(const DotArgs& args) {
  with_stored_type(args.b_dtype,
                   [&]<class Stored>(std::type_identity<Stored>) { dot_stored<Stored>(args); });
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(DotRows);

void dot_rows(const DotArgs& args) {
  HWY_DYNAMIC_DISPATCH(DotRows)(args);
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
