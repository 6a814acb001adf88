#include "kernels/cpu/dot.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dot.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/widen-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::ScalableTag<float>;
using Vector = hn::Vec<Wide>;
constexpr int64_t lanes = hn::MaxLanes(Wide());
constexpr int max_rows = 4;
// Rows of b in flight: 16 accumulators with AVX-512, 8 with AVX2.
constexpr int max_columns = lanes >= 16 ? 4 : 2;

template <int kRows, int kColumns, class Stored>
HWY_INLINE void dot_tile(const DotArgs& args, const float* a, const Stored* b, float* c) {
  const Wide d;
  Vector sums[kRows][kColumns];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int o = 0; o < kColumns; ++o) sums[r][o] = hn::Zero(d);

  int64_t i = 0;
  for (; i + lanes <= args.depth; i += lanes) {
    Vector x[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) x[r] = hn::LoadU(d, a + r * args.a_stride + i);
#pragma GCC unroll 4
    for (int o = 0; o < kColumns; ++o) {
      const Vector w = load_wide(d, b + o * args.b_stride + i);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sums[r][o] = hn::MulAdd(x[r], w, sums[r][o]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int o = 0; o < kColumns; ++o) {
      float sum = hn::GetLane(hn::SumOfLanes(d, sums[r][o]));
      for (int64_t j = i; j < args.depth; ++j)
        sum += a[r * args.a_stride + j] * widen_one(b[o * args.b_stride + j]);
      float* const to = c + r * args.c_stride + o;
      *to = args.accumulate ? *to + sum : sum;
    }
}

/// All rows with `kColumns` rows of b, which stay in the first cache meanwhile.
template <int kColumns, class Stored>
HWY_INLINE void dot_columns(const DotArgs& args, const Stored* b, float* c) {
  for (int64_t row = 0; row < args.rows; row += max_rows) {
    const float* a = args.a + row * args.a_stride;
    float* const to = c + row * args.c_stride;
    switch (std::min<int64_t>(max_rows, args.rows - row)) {
      case 1:
        dot_tile<1, kColumns>(args, a, b, to);
        break;
      case 2:
        dot_tile<2, kColumns>(args, a, b, to);
        break;
      case 3:
        dot_tile<3, kColumns>(args, a, b, to);
        break;
      case 4:
        dot_tile<4, kColumns>(args, a, b, to);
        break;
    }
  }
}

template <class Stored>
void dot_stored(const DotArgs& args) {
  const auto* b = static_cast<const Stored*>(args.b);
  int64_t o = 0;
  for (; o + max_columns <= args.columns; o += max_columns)
    dot_columns<max_columns>(args, b + o * args.b_stride, args.c + o);
  for (; o < args.columns; ++o) dot_columns<1>(args, b + o * args.b_stride, args.c + o);
}

void DotRows(const DotArgs& args) {
  if (args.b_dtype == DType::fp32) return dot_stored<float>(args);
  if (args.b_dtype == DType::bf16) return dot_stored<bfloat16_t>(args);
  dot_stored<float16_t>(args);
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
