// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/ordered_dot.hpp"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/products/ordered_dot.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/shared/widen-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::ScalableTag<float>;
using Vector = hn::Vec<Wide>;
constexpr int64_t lanes = hn::MaxLanes(Wide());
constexpr int64_t panel = 2 * lanes;
constexpr int64_t block_lanes = 4;  // of 128 bits
// Accumulators of a tile: 16 of 32 registers with AVX-512, 6 of 16 with AVX2.
constexpr int max_rows = lanes >= 16 ? 8 : 3;

// fp32 rows of b are read where they are. Narrower ones are widened into a slab of 17 KiB, a few
// cache lines of each row at a time; its stride keeps the rows apart in the first cache.
constexpr int64_t slab_depth = 128;
constexpr int64_t slab_stride = slab_depth + block_lanes;

/// Floats of the rows of b.
struct Slab {
  const float* first;
  int64_t stride;
  int64_t depth;  ///< up to the next multiple of four there is something to read
};

/// Four floats from each of rows 0, 4, 8, …, one block after the other.
template <class D>
HWY_INLINE hn::Vec<D> load_every_fourth(D d, const float* from, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) == block_lanes) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    constexpr int64_t rows = hn::MaxLanes(hn::Half<D>());
    return hn::Combine(d, load_every_fourth(half, from + rows * stride, stride),
                       load_every_fourth(half, from, stride));
  }
}

/// Four columns of `lanes` rows: a 4 × 4 transposition in every block.
HWY_INLINE void load_columns(const float* from, int64_t stride, Vector (&columns)[block_lanes]) {
  const Wide d;
  const hn::Repartition<double, Wide> pairs;
  const auto as_pairs = [&](Vector v) { return hn::BitCast(pairs, v); };
  const Vector r0 = load_every_fourth(d, from, stride);
  const Vector r1 = load_every_fourth(d, from + stride, stride);
  const Vector r2 = load_every_fourth(d, from + 2 * stride, stride);
  const Vector r3 = load_every_fourth(d, from + 3 * stride, stride);
  const auto low01 = as_pairs(hn::InterleaveLower(d, r0, r1));
  const auto low23 = as_pairs(hn::InterleaveLower(d, r2, r3));
  const auto high01 = as_pairs(hn::InterleaveUpper(d, r0, r1));
  const auto high23 = as_pairs(hn::InterleaveUpper(d, r2, r3));
  columns[0] = hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23));
  columns[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23));
  columns[2] = hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23));
  columns[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23));
}

/// c += the products of the rows of a with the slab's.
template <int kRows>
HWY_INLINE void add_slab(const float* a, int64_t a_stride, const Slab& slab, float* c,
                         int64_t c_stride) {
  const Wide d;
  Vector sums[kRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    sums[r][0] = hn::LoadU(d, c + r * c_stride);
    sums[r][1] = hn::LoadU(d, c + r * c_stride + lanes);
  }
  for (int64_t i = 0; i < slab.depth; i += block_lanes) {
    Vector low[block_lanes], high[block_lanes];
    load_columns(slab.first + i, slab.stride, low);
    load_columns(slab.first + lanes * slab.stride + i, slab.stride, high);
    const int64_t count = std::min(block_lanes, slab.depth - i);
#pragma GCC unroll 4
    for (int64_t j = 0; j < block_lanes; ++j) {
      if (j >= count) break;
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vector factor = hn::Set(d, a[r * a_stride + i + j]);
        sums[r][0] = hn::MulAdd(factor, low[j], sums[r][0]);
        sums[r][1] = hn::MulAdd(factor, high[j], sums[r][1]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    hn::StoreU(sums[r][0], d, c + r * c_stride);
    hn::StoreU(sums[r][1], d, c + r * c_stride + lanes);
  }
}

template <int kRows>
HWY_INLINE void add_slab_to_rows(int64_t rows, const float* a, int64_t a_stride, const Slab& slab,
                                 float* c, int64_t c_stride) {
  if (rows == kRows) return add_slab<kRows>(a, a_stride, slab, c, c_stride);
  if constexpr (kRows > 1) add_slab_to_rows<kRows - 1>(rows, a, a_stride, slab, c, c_stride);
}

template <class Stored>
void ordered_panels(const DotArgs& args) {
  HWY_ALIGN float wide[panel * slab_stride] = {};
  for (int64_t o = 0; o < args.columns; o += panel) {
    const Stored* b = static_cast<const Stored*>(args.b) + o * args.b_stride;
    for (int64_t r = 0; !args.accumulate && r < args.rows; ++r)
      std::fill_n(args.c + r * args.c_stride + o, panel, 0.0f);
    const auto add = [&](int64_t begin, const Slab& slab) {
      for (int64_t row = 0; row < args.rows; row += max_rows)
        add_slab_to_rows<max_rows>(std::min<int64_t>(max_rows, args.rows - row),
                                   args.a + row * args.a_stride + begin, args.a_stride, slab,
                                   args.c + row * args.c_stride + o, args.c_stride);
    };
    int64_t begin = 0;
    if constexpr (std::is_same_v<Stored, float>) {
      begin = args.depth / block_lanes * block_lanes;
      add(0, {b, args.b_stride, begin});
    }
    for (; begin < args.depth; begin += slab_depth) {
      const int64_t depth = std::min(slab_depth, args.depth - begin);
      for (int64_t row = 0; row < panel; ++row)
        widen_row(b + row * args.b_stride + begin, depth, wide + row * slab_stride);
      add(begin, {wide, slab_stride, depth});
    }
  }
}

void OrderedDotRows(const DotArgs& args) {
  with_stored_type(args.b_dtype,
                   [&]<class Stored>(std::type_identity<Stored>) { ordered_panels<Stored>(args); });
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(OrderedDotRows);

void ordered_dot_rows(const DotArgs& args) {
  HWY_DYNAMIC_DISPATCH(OrderedDotRows)(args);
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
