// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cast.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/shared/round-inl.hpp"
#include "kernels/cpu/shared/widen-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {

void CastRows(const CastArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.x.size(1);
  for (int64_t t = begin; t < end; ++t)
    if (args.out.dtype() == DType::fp32)
      widen_row(static_cast<const bfloat16_t*>(args.x.row(t)), width,
                static_cast<float*>(args.out.row(t)));
    else
      round_row(static_cast<const float*>(args.x.row(t)), width,
                static_cast<uint16_t*>(args.out.row(t)));
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(CastRows);

void cast(const CastArgs& args, const device::Stream& stream) {
  for_each_range(stream, args.x.rows(), rows_per_task(args.x.size(1)),
                 [&](int64_t begin, int64_t end) {
                   HWY_DYNAMIC_DISPATCH(CastRows)(args, begin, end);
                 });
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
