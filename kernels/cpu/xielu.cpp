// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/products/bf16_native.hpp"
#include "kernels/cpu/shared/parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/xielu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h, which selects the target.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V curved(D d, V x, const XieluCurve& curve) {
  const V linear = hn::Mul(hn::Set(d, curve.slope), x);
  const V above = hn::MulAdd(hn::Mul(hn::Set(d, curve.positive), x), x, linear);
  // Below −104 expm1 is −1, and Highway's is not defined.
  const V bounded = hn::Max(hn::Min(x, hn::Set(d, curve.most)), hn::Set(d, -104.0f));
  const V bend = hn::Sub(hn::Expm1(d, bounded), x);
  const V below = hn::MulAdd(hn::Set(d, curve.negative), bend, linear);
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), above, below);
}

/// The last columns are computed as vectors too: a column's bits do not depend on where it stands.
HWY_INLINE void curve_some(const float* x, int64_t count, const XieluCurve& curve, float* out) {
  const hn::ScalableTag<float> d;
  constexpr int64_t lanes = hn::MaxLanes(d);
  const int64_t whole = count / lanes * lanes;
  for (int64_t i = 0; i < whole; i += lanes)
    hn::StoreU(curved(d, hn::LoadU(d, x + i), curve), d, out + i);
  if (whole == count) return;
  HWY_ALIGN float last[lanes] = {};
  std::copy(x + whole, x + count, last);
  hn::Store(curved(d, hn::Load(d, last), curve), d, last);
  std::copy_n(last, count - whole, out + whole);
}

/// The same, rounded.
void curve_to_bf16(const float* x, int64_t count, const XieluCurve& curve, uint16_t* out) {
  constexpr int64_t piece = 256;
  HWY_ALIGN float wide[piece];
  for (int64_t i = 0; i < count; i += piece) {
    const int64_t some = std::min(piece, count - i);
    curve_some(x + i, some, curve, wide);
    store_bf16_native(wide, some, out + i);
  }
}

void CurveRows(const XieluArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.out.size(1);
  for (int64_t t = begin; t < end; ++t) {
    const auto* x = static_cast<const float*>(args.x.row(t));
    if (args.out.dtype() == DType::bf16)
      curve_to_bf16(x, width, args.curve, static_cast<uint16_t*>(args.out.row(t)));
    else
      curve_some(x, width, args.curve, static_cast<float*>(args.out.row(t)));
  }
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(CurveRows);

void xielu(const XieluArgs& args, const device::Stream& stream) {
  for_each_range(stream, args.out.rows(), rows_per_task(args.out.size(1)),
                 [&](int64_t begin, int64_t end) {
                   HWY_DYNAMIC_DISPATCH(CurveRows)(args, begin, end);
                 });
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
