// SPDX-License-Identifier: Apache-2.0
// Highway wants a per-target include guard for headers with vector code.
#if defined(PECIA_KERNELS_CPU_EXP_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef PECIA_KERNELS_CPU_EXP_INL_HPP_
#undef PECIA_KERNELS_CPU_EXP_INL_HPP_
#else
#define PECIA_KERNELS_CPU_EXP_INL_HPP_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Returns exp(x) for x ≤ 0, within 2 units in the last place. It is 0 below −87, where fp32
/// becomes subnormal. NaN stays NaN, while Highway's Exp turns it into 0. This and half the
/// instructions are the reasons to have our own.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_nonpositive(D d, V x) {
  const hn::RebindToSigned<D> bits_tag;
  // Adding 1.5 · 2²³ leaves the nearest integer in the low bits.
  const V shift = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), shift);
  const V n = hn::Sub(shifted, shift);
  // x − n·log 2 is computed in two parts. The first is exact.
  const V r =
      hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x));
  // The polynomial is the one of Cephes' expf, on |r| ≤ log(2)/2.
  V p = hn::MulAdd(hn::Set(d, 1.9875691500e-4f), r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto exponent = hn::Add(hn::BitCast(bits_tag, shifted), hn::Set(bits_tag, 127));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), hn::Mul(p, power));
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
