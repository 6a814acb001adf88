// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"
#include "lib/base/core/fp8_vector.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kv_store.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/shared/round-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE void store_head(const float* x, int64_t count, DType dtype, void* to) {
  if (dtype == DType::fp32) {
    std::memcpy(to, x, count * sizeof(float));
    return;
  }
  if (dtype == DType::bf16) return round_row(x, count, static_cast<uint16_t*>(to));
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  auto* halves = static_cast<uint16_t*>(to);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const hn::Rebind<hwy::float16_t, decltype(d)> half_tag;
    hn::StoreU(hn::DemoteTo(half_tag, hn::LoadU(d, x + i)), half_tag,
               reinterpret_cast<hwy::float16_t*>(halves + i));
  }
  for (; i < count; ++i) store_from_float(to, dtype, i, x[i]);
}

/// The scale of a vector; NaN and infinity count as greater than any number.
HWY_INLINE float scale_of(const float* x, int64_t count) {
  const hn::ScalableTag<int32_t> d;  // magnitudes are ordered as the integers of their bits
  const int64_t lanes = hn::Lanes(d);
  const auto magnitude_mask = hn::Set(d, 0x7fffffff);
  const auto* bits = reinterpret_cast<const int32_t*>(x);
  auto greatest = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    greatest = hn::Max(greatest, hn::And(hn::LoadU(d, bits + i), magnitude_mask));
  int32_t of_all = hn::GetLane(hn::MaxOfLanes(d, greatest));
  for (; i < count; ++i) of_all = std::max(of_all, std::bit_cast<int32_t>(x[i]) & 0x7fffffff);
  return fp8_scale(std::bit_cast<float>(of_all));
}

/// float_to_fp8 of a vector whose elements are numbers.
template <class D>
HWY_INLINE void store_fp8(D d, hn::Vec<D> value, uint8_t* to) {
  const hn::RebindToSigned<D> bits_tag;
  const auto magnitude = hn::Min(hn::Abs(value), hn::Set(d, max_fp8));
  const auto bits = hn::BitCast(bits_tag, magnitude);
  const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(bits_tag, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(bits_tag, 0x7ffff - (120 << 23))), odd);
  // Below 2⁻⁶ codes are multiples of 2⁻⁹.
  const auto small = hn::NearestInt(hn::Mul(magnitude, hn::Set(d, 0x1p9f)));
  const auto is_small = hn::RebindMask(bits_tag, hn::Lt(magnitude, hn::Set(d, 0x1p-6f)));
  const auto code = hn::IfThenElse(is_small, small, hn::ShiftRight<20>(rounded));
  const auto sign =
      hn::And(hn::ShiftRight<24>(hn::BitCast(bits_tag, value)), hn::Set(bits_tag, 0x80));
  const hn::Rebind<uint8_t, D> code_tag;
  hn::StoreU(hn::DemoteTo(code_tag, hn::Or(code, sign)), code_tag, to);
}

/// The codes of x; returns their scale.
HWY_INLINE float store_scaled(const float* x, int64_t count, uint8_t* to) {
  const float scale = scale_of(x, count);
  if (std::isnan(scale)) {
    std::fill_n(to, count, float_to_fp8(scale));
    return scale;
  }
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    store_fp8(d, hn::Div(hn::LoadU(d, x + i), hn::Set(d, scale)), to + i);
  for (; i < count; ++i) to[i] = float_to_fp8(x[i] / scale);
  return scale;
}

void StoreScaledRows(const KvStoreArgs& args, int64_t begin, int64_t end) {
  const int64_t heads = args.x.size(1), head_dim = args.x.size(2);
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < heads; ++h)
      static_cast<float*>(args.scales.row(h))[args.slots[t]] =
          store_scaled(static_cast<const float*>(args.x.row(t)) + h * head_dim, head_dim,
                       static_cast<uint8_t*>(args.cache.row(h)) + args.slots[t] * head_dim);
}

void StoreRows(const KvStoreArgs& args, int64_t begin, int64_t end) {
  const int64_t heads = args.x.size(1), head_dim = args.x.size(2);
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < heads; ++h)
      store_head(static_cast<const float*>(args.x.row(t)) + h * head_dim, head_dim,
                 args.cache.dtype(),
                 static_cast<char*>(args.cache.row(h)) +
                     args.slots[t] * head_dim * size_of(args.cache.dtype()));
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(StoreRows);
HWY_EXPORT(StoreScaledRows);

void kv_store(const KvStoreArgs& args, const device::Stream& stream) {
  for_each_range(stream, args.x.rows(), rows_per_task(args.x.row_elements()),
                 [&](int64_t begin, int64_t end) {
                   if (args.cache.dtype() == DType::fp8)
                     HWY_DYNAMIC_DISPATCH(StoreScaledRows)(args, begin, end);
                   else
                     HWY_DYNAMIC_DISPATCH(StoreRows)(args, begin, end);
                 });
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
