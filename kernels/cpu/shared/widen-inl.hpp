// SPDX-License-Identifier: Apache-2.0
// Highway wants a per-target include guard for headers with vector code.
#if defined(PECIA_KERNELS_CPU_WIDEN_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef PECIA_KERNELS_CPU_WIDEN_INL_HPP_
#undef PECIA_KERNELS_CPU_WIDEN_INL_HPP_
#else
#define PECIA_KERNELS_CPU_WIDEN_INL_HPP_
#endif
/// Loads stored elements (fp32, bf16, fp16, fp8) as fp32 vectors.

#include <hwy/highway.h>

#include <bit>
#include <type_traits>

#include "lib/base/core/dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using hwy::bfloat16_t;
using hwy::float16_t;
struct Fp8 {
  uint8_t bits;
};

/// Calls use(std::type_identity<Stored>()) with the C++ type of stored elements.
template <class Use>
HWY_INLINE void with_stored_type(DType dtype, const Use& use) {
  if (dtype == DType::fp32) return use(std::type_identity<float>());
  if (dtype == DType::bf16) return use(std::type_identity<bfloat16_t>());
  if (dtype == DType::fp8) return use(std::type_identity<Fp8>());
  use(std::type_identity<float16_t>());
}

template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D, class Stored>
HWY_INLINE hn::Vec<D> load_wide(D d, const Stored* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<Stored, D>(), from));
}
/// Goes by way of fp16, whose exponents are 8 larger. The same bits there stand for 2⁻⁸ of the
/// number.
template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, const Fp8* from) {
  const hn::Rebind<uint8_t, D> code_tag;
  const hn::Rebind<uint16_t, D> half_tag;
  const hn::Rebind<float16_t, D> fp16_tag;
  const auto codes =
      hn::PromoteTo(half_tag, hn::LoadU(code_tag, reinterpret_cast<const uint8_t*>(from)));
  const auto magnitude = hn::And(codes, hn::Set(half_tag, uint16_t{0x7f}));
  const auto sign = hn::ShiftLeft<8>(hn::AndNot(hn::Set(half_tag, uint16_t{0x7f}), codes));
  const auto is_nan = hn::Eq(magnitude, hn::Set(half_tag, uint16_t{0x7f}));
  const auto number =
      hn::IfThenElse(is_nan, hn::Set(half_tag, uint16_t{0x7e00}), hn::ShiftLeft<7>(magnitude));
  const auto halves = hn::BitCast(fp16_tag, hn::Or(sign, number));
  return hn::Mul(hn::PromoteTo(d, halves), hn::Set(d, 256.0f));
}

HWY_INLINE float widen_one(float value) {
  return value;
}
HWY_INLINE float widen_one(bfloat16_t value) {
  return bf16_to_float(std::bit_cast<uint16_t>(value));
}
HWY_INLINE float widen_one(float16_t value) {
  return fp16_to_float(std::bit_cast<uint16_t>(value));
}
HWY_INLINE float widen_one(Fp8 value) {
  return fp8_to_float(value.bits);
}

/// Widens elements [0, count) to fp32.
template <class Stored>
HWY_INLINE void widen_row(const Stored* from, int64_t count, float* to) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(load_wide(d, from + i), d, to + i);
  for (; i < count; ++i) to[i] = widen_one(from[i]);
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
