// SPDX-License-Identifier: Apache-2.0
// Highway wants a per-target include guard for headers with vector code.
#if defined(PECIA_KERNELS_CPU_ROUND_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef PECIA_KERNELS_CPU_ROUND_INL_HPP_
#undef PECIA_KERNELS_CPU_ROUND_INL_HPP_
#else
#define PECIA_KERNELS_CPU_ROUND_INL_HPP_
#endif
/// Rounds fp32 numbers to bf16.

#include <hwy/highway.h>

#include "kernels/cpu/products/bf16_native.hpp"
#include "lib/base/core/dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// float_to_bf16 of a vector: round to nearest even, NaN stays NaN. (Highway's own DemoteTo cuts
/// off.)
template <class D>
HWY_INLINE void store_bf16(D, hn::Vec<D> value, uint16_t* to) {
  const hn::RebindToUnsigned<D> bits_tag;
  const auto bits = hn::BitCast(bits_tag, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(bits_tag, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(bits_tag, 0x7fffu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(bits_tag, 0x400000u));
  const auto chosen = hn::IfThenElse(hn::RebindMask(bits_tag, hn::IsNaN(value)), quiet, rounded);
  const hn::Rebind<uint16_t, D> half_tag;
  const hn::RebindToSigned<D> signed_tag;
  hn::StoreU(hn::DemoteTo(half_tag, hn::BitCast(signed_tag, hn::ShiftRight<16>(chosen))), half_tag,
             to);
}

/// Rounds elements [0, count), by the CPU's own instruction where it has one.
HWY_INLINE void round_row(const float* x, int64_t count, uint16_t* to) {
  if (has_native_bf16()) return store_bf16_native(x, count, to);
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store_bf16(d, hn::LoadU(d, x + i), to + i);
  for (; i < count; ++i) to[i] = float_to_bf16(x[i]);
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
