// Per-target include guard, as Highway wants for headers with vector code.
#if defined(PECIA_KERNELS_CPU_WIDEN_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef PECIA_KERNELS_CPU_WIDEN_INL_HPP_
#undef PECIA_KERNELS_CPU_WIDEN_INL_HPP_
#else
#define PECIA_KERNELS_CPU_WIDEN_INL_HPP_
#endif
/// Loads and stores of stored elements (fp32, bf16, fp16) as fp32 vectors.

#include <hwy/highway.h>

#include <bit>
#include <type_traits>

#include "lib/core/dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using hwy::bfloat16_t;
using hwy::float16_t;

/// use(std::type_identity<Stored>()) with the C++ type of stored elements.
template <class Use>
HWY_INLINE void with_stored_type(DType dtype, const Use& use) {
  if (dtype == DType::fp32) return use(std::type_identity<float>());
  if (dtype == DType::bf16) return use(std::type_identity<bfloat16_t>());
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

HWY_INLINE float widen_one(float value) {
  return value;
}
HWY_INLINE float widen_one(bfloat16_t value) {
  return bf16_to_float(std::bit_cast<uint16_t>(value));
}
HWY_INLINE float widen_one(float16_t value) {
  return fp16_to_float(std::bit_cast<uint16_t>(value));
}

/// Elements [0, count) to fp32.
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
