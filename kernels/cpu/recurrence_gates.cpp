// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/recurrence_gates.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h, which selects the target.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Highway's exponential of NaN is 0, so NaN is put back here and below.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V softplus(D d, V x) {
  const V limit = hn::Set(d, softplus_limit);
  const V curved = hn::Log1p(d, hn::Exp(d, hn::Min(x, limit)));
  return hn::IfThenElse(hn::Or(hn::Gt(x, limit), hn::IsNaN(x)), x, curved);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V exponential = hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 104.0f)));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Div(one, hn::Add(one, exponential)));
}

HWY_INLINE float* in_row(const TensorView& x, int64_t t) {
  return static_cast<float*>(x.row(t));
}

/// The heads of a mask, in row t from head i on. All heads are computed as vectors: a head's bits do
/// not depend on where it stands.
template <class D, class M>
HWY_INLINE void make_gates(D d, M heads, const RecurrenceGatesArgs& args, int64_t t, int64_t i) {
  using V = hn::Vec<D>;
  const V bias = hn::MaskedLoad(heads, d, args.bias.as<float>() + i);
  const V rate = hn::MaskedLoad(heads, d, args.rate.as<float>() + i);
  const V least = hn::Set(d, args.least_step), most = hn::Set(d, args.most_step);
  V step = softplus(d, hn::Add(hn::MaskedLoad(heads, d, in_row(args.a, t) + i), bias));
  step = hn::IfThenElse(hn::Lt(step, least), least, step);  // Max may lose NaN
  step = hn::IfThenElse(hn::Gt(step, most), most, step);
  const V strength = args.b ? sigmoid(d, hn::MaskedLoad(heads, d, in_row(args.b, t) + i)) : step;
  hn::BlendedStore(hn::Mul(rate, step), heads, d, in_row(args.decay, t) + i);
  hn::BlendedStore(strength, heads, d, in_row(args.strength, t) + i);
}

void MakeGates(const RecurrenceGatesArgs& args, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  constexpr int64_t lanes = hn::MaxLanes(d);
  const int64_t heads = args.a.size(1);
  for (int64_t t = begin; t < end; ++t)
    for (int64_t i = 0; i < heads; i += lanes)
      make_gates(d, hn::FirstN(d, static_cast<size_t>(std::min(lanes, heads - i))), args, t, i);
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(MakeGates);

void recurrence_gates(const RecurrenceGatesArgs& args, const device::Stream& stream) {
  for_each_range(stream, args.a.rows(), rows_per_task(16 * args.a.size(1)),
                 [&](int64_t begin, int64_t end) {
                   HWY_DYNAMIC_DISPATCH(MakeGates)(args, begin, end);
                 });
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
