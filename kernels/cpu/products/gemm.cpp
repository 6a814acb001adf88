// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/gemm.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/products/gemm.cpp"
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
// Accumulators of a tile: 28 of 32 registers with AVX-512, 12 of 16 with AVX2.
constexpr int max_tile_rows = lanes >= 16 ? 14 : 6;

int64_t PanelColumns() {
  return panel;
}

template <int kRows>
HWY_INLINE void multiply_tile(const float* HWY_RESTRICT a, int64_t a_stride,
                              const float* HWY_RESTRICT b, int64_t b_stride, int64_t depth,
                              float* HWY_RESTRICT c, int64_t c_stride, bool accumulate) {
  const Wide d;
  Vector sums[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    sums[r][0] = accumulate ? hn::LoadU(d, c + r * c_stride) : hn::Zero(d);
    sums[r][1] = accumulate ? hn::LoadU(d, c + r * c_stride + lanes) : hn::Zero(d);
  }
  for (int64_t i = 0; i < depth; ++i) {
    const Vector b0 = hn::LoadU(d, b + i * b_stride);
    const Vector b1 = hn::LoadU(d, b + i * b_stride + lanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vector factor = hn::Set(d, a[r * a_stride + i]);
      sums[r][0] = hn::MulAdd(factor, b0, sums[r][0]);
      sums[r][1] = hn::MulAdd(factor, b1, sums[r][1]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    hn::StoreU(sums[r][0], d, c + r * c_stride);
    hn::StoreU(sums[r][1], d, c + r * c_stride + lanes);
  }
}

/// The panels of one tile of rows; the last panel may be narrower and goes through a buffer.
template <int kRows>
void multiply_rows(const GemmArgs& args, const float* a, float* c) {
  for (int64_t column = 0; column < args.columns; column += panel) {
    const float* b = args.b + column / panel * args.b_panel_stride;
    const int64_t width = std::min(panel, args.columns - column);
    if (width == panel) {
      multiply_tile<kRows>(a, args.a_stride, b, args.b_row_stride, args.depth, c + column,
                           args.c_stride, args.accumulate);
      continue;
    }
    HWY_ALIGN float tile[kRows * panel] = {};
    for (int r = 0; args.accumulate && r < kRows; ++r)
      std::copy_n(c + r * args.c_stride + column, width, tile + r * panel);
    multiply_tile<kRows>(a, args.a_stride, b, args.b_row_stride, args.depth, tile, panel,
                         args.accumulate);
    for (int r = 0; r < kRows; ++r)
      std::copy_n(tile + r * panel, width, c + r * args.c_stride + column);
  }
}

template <int kRows>
void multiply_some_rows(int64_t rows, const GemmArgs& args, const float* a, float* c) {
  if (rows == kRows) return multiply_rows<kRows>(args, a, c);
  if constexpr (kRows > 1) multiply_some_rows<kRows - 1>(rows, args, a, c);
}

void Gemm(const GemmArgs& args) {
  const int64_t num_tiles = (args.rows + max_tile_rows - 1) / max_tile_rows;
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    const int64_t begin = args.rows * tile / num_tiles, end = args.rows * (tile + 1) / num_tiles;
    multiply_some_rows<max_tile_rows>(end - begin, args, args.a + begin * args.a_stride,
                                      args.c + begin * args.c_stride);
  }
}

template <class Stored>
void pack_columns(const Stored* rows, const PackArgs& args, int64_t columns, float* packed) {
  const hn::FixedTag<float, 4> d;  // 4 × 4 blocks, transposed in registers
  int64_t column = 0;
  for (; column + 4 <= columns; column += 4) {
    const Stored* r = rows + column * args.row_stride;
    const int64_t stride = args.row_stride;
    int64_t i = 0;
    for (; i + 4 <= args.depth; i += 4) {
      const auto r0 = load_wide(d, r + i), r1 = load_wide(d, r + stride + i);
      const auto r2 = load_wide(d, r + 2 * stride + i), r3 = load_wide(d, r + 3 * stride + i);
      const auto low01 = hn::InterleaveLower(d, r0, r1), low23 = hn::InterleaveLower(d, r2, r3);
      const auto high01 = hn::InterleaveUpper(d, r0, r1), high23 = hn::InterleaveUpper(d, r2, r3);
      float* to = packed + i * panel + column;
      hn::Store(hn::ConcatLowerLower(d, low23, low01), d, to);
      hn::Store(hn::ConcatUpperUpper(d, low23, low01), d, to + panel);
      hn::Store(hn::ConcatLowerLower(d, high23, high01), d, to + 2 * panel);
      hn::Store(hn::ConcatUpperUpper(d, high23, high01), d, to + 3 * panel);
    }
    for (; i < args.depth; ++i)
      for (int64_t c = 0; c < 4; ++c) packed[i * panel + column + c] = widen_one(r[c * stride + i]);
  }
  for (; column < panel; ++column)
    for (int64_t i = 0; i < args.depth; ++i)
      packed[i * panel + column] =
          column < columns ? widen_one(rows[column * args.row_stride + i]) : 0.0f;
}

template <class Stored>
void pack_panels(const PackArgs& args) {
  const auto* rows = static_cast<const Stored*>(args.rows);
  for (int64_t column = 0; column < args.columns; column += panel)
    pack_columns(rows + column * args.row_stride, args, std::min(panel, args.columns - column),
                 args.packed + column * args.depth);
}

void PackTransposed(const PackArgs& args) {
  with_stored_type(args.dtype,
                   [&]<class Stored>(std::type_identity<Stored>) { pack_panels<Stored>(args); });
}

template <class Stored>
void widen_all(const void* from, int64_t row_stride, int64_t num_rows, int64_t width, float* to,
               int64_t to_stride) {
  const auto* rows = static_cast<const Stored*>(from);
  for (int64_t row = 0; row < num_rows; ++row) {
    widen_row(rows + row * row_stride, width, to + row * to_stride);
    std::fill(to + row * to_stride + width, to + (row + 1) * to_stride, 0.0f);
  }
}

void WidenRows(const void* rows, DType dtype, int64_t row_stride, int64_t num_rows, int64_t width,
               float* to, int64_t to_stride) {
  with_stored_type(dtype, [&]<class Stored>(std::type_identity<Stored>) {
    widen_all<Stored>(rows, row_stride, num_rows, width, to, to_stride);
  });
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {

HWY_EXPORT(PanelColumns);
HWY_EXPORT(PackTransposed);
HWY_EXPORT(WidenRows);
HWY_EXPORT(Gemm);

int64_t panel_columns() {
  return HWY_DYNAMIC_DISPATCH(PanelColumns)();
}

void pack_transposed(const PackArgs& args) {
  HWY_DYNAMIC_DISPATCH(PackTransposed)(args);
}

void widen_rows(const void* rows, DType dtype, int64_t row_stride, int64_t num_rows, int64_t width,
                float* to, int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(WidenRows)(rows, dtype, row_stride, num_rows, width, to, to_stride);
}

void gemm(const GemmArgs& args) {
  HWY_DYNAMIC_DISPATCH(Gemm)(args);
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
