#include <cstring>

#include "kernels/cpu/bf16_native.hpp"
#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kv_store.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

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

HWY_INLINE void store_head(const float* x, int64_t count, DType dtype, void* to) {
  if (dtype == DType::fp32) {
    std::memcpy(to, x, count * sizeof(float));
    return;
  }
  if (dtype == DType::bf16 && has_native_bf16()) {
    store_bf16_native(x, count, static_cast<uint16_t*>(to));
    return;
  }
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  auto* halves = static_cast<uint16_t*>(to);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = hn::LoadU(d, x + i);
    if (dtype == DType::bf16) {
      store_bf16(d, value, halves + i);
    } else {
      const hn::Rebind<hwy::float16_t, decltype(d)> half_tag;
      hn::StoreU(hn::DemoteTo(half_tag, value), half_tag,
                 reinterpret_cast<hwy::float16_t*>(halves + i));
    }
  }
  for (; i < count; ++i) store_from_float(to, dtype, i, x[i]);
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

void kv_store(const KvStoreArgs& args, const device::Stream& stream) {
  for_each_range(stream, args.x.rows(), rows_per_task(args.x.row_elements()),
                 [&](int64_t begin, int64_t end) {
                   HWY_DYNAMIC_DISPATCH(StoreRows)(args, begin, end);
                 });
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
