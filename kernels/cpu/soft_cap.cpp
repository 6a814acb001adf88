// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/soft_cap.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h, which selects the target.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// tanh(z) = e / (e + 2) with e = expm1(2z), for z < 10, where it is 1 in fp32.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V capped(D d, V x, float cap) {
  const V z = hn::Div(x, hn::Set(d, cap));
  const V size = hn::Min(hn::Abs(z), hn::Set(d, 10.0f));
  const V e = hn::Expm1(d, hn::Add(size, size));
  const V tanh = hn::Div(e, hn::Add(e, hn::Set(d, 2.0f)));
  const V found = hn::CopySign(hn::Mul(hn::Set(d, cap), tanh), x);
  return hn::IfThenElse(hn::IsNaN(x), x, found);
}

/// The last columns are computed as vectors too: a column's bits do not depend on where it stands.
void CapRows(const SoftCapArgs& args, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  constexpr int64_t lanes = hn::MaxLanes(d);
  const int64_t width = args.x.size(1), whole = width / lanes * lanes;
  for (int64_t t = begin; t < end; ++t) {
    auto* const x = static_cast<float*>(args.x.row(t));
    for (int64_t i = 0; i < whole; i += lanes)
      hn::StoreU(capped(d, hn::LoadU(d, x + i), args.cap), d, x + i);
    if (whole == width) continue;
    HWY_ALIGN float last[lanes] = {};
    std::copy(x + whole, x + width, last);
    hn::Store(capped(d, hn::Load(d, last), args.cap), d, last);
    std::copy_n(last, width - whole, x + whole);
  }
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(CapRows);

void soft_cap(const SoftCapArgs& args, const device::Stream& stream) {
  for_each_range(stream, args.x.rows(), rows_per_task(16 * args.x.size(1)),
                 [&](int64_t begin, int64_t end) {
                   HWY_DYNAMIC_DISPATCH(CapRows)(args, begin, end);
                 });
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
